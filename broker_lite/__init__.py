"""An embedded, durable broker, or several of them, that speak Kafka's protocol and keep Kafka's files."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from broker_lite.config import BrokerConfig, ConfigError
    from broker_lite.embedded import BrokerStartError, EmbeddedBroker
    from broker_lite.embedded_cluster import EmbeddedCluster

__all__ = ["BrokerConfig", "BrokerStartError", "ConfigError", "EmbeddedBroker", "EmbeddedCluster"]

# Loaded on first use: pytest loads this package for its plugin, also where no test needs a broker.
_WHERE = {
    "BrokerConfig": "broker_lite.config",
    "BrokerStartError": "broker_lite.embedded",
    "ConfigError": "broker_lite.config",
    "EmbeddedBroker": "broker_lite.embedded",
    "EmbeddedCluster": "broker_lite.embedded_cluster",
}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_WHERE[name]), name)
    return value

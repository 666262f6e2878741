"""An embedded, durable, single-process broker that speaks Kafka's protocol and keeps Kafka's files."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from broker_lite.config import BrokerConfig, ConfigError
    from broker_lite.embedded import BrokerStartError, EmbeddedBroker

__all__ = ["BrokerConfig", "BrokerStartError", "ConfigError", "EmbeddedBroker"]

# Loaded on first use: pytest loads this package for its plugin, also where no test needs a broker.
_WHERE = {
    "BrokerConfig": "broker_lite.config",
    "BrokerStartError": "broker_lite.embedded",
    "ConfigError": "broker_lite.config",
    "EmbeddedBroker": "broker_lite.embedded",
}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_WHERE[name]), name)
    return value

"""An embedded, durable, single-process broker that speaks Kafka's protocol and keeps Kafka's files."""

from __future__ import annotations

from broker_lite.config import BrokerConfig, ConfigError
from broker_lite.embedded import BrokerStartError, EmbeddedBroker

__all__ = ["BrokerConfig", "BrokerStartError", "ConfigError", "EmbeddedBroker"]

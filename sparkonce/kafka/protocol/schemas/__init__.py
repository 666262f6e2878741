"""Messages without a schema in kafka-python, in the form of Kafka's own schema files.

Theory of operation: kafka-python creates a codec from the JSON file with the name of the class. A field has the
version from which on it exists; `docs/internals/groups.md` describes the messages, and
`docs/internals/cluster.md` those between brokers.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_ApiMessage: Any = import_module("kafka.protocol.api_message").ApiMessage


def _codec(name: str) -> Any:
    return type(_ApiMessage)(name, (_ApiMessage,), {"__module__": __name__}, load_json=__name__)


ConsumerGroupHeartbeatRequest = _codec("ConsumerGroupHeartbeatRequest")
"""API 68 (KIP-848)."""
ConsumerGroupHeartbeatResponse = _codec("ConsumerGroupHeartbeatResponse")
ConsumerGroupDescribeRequest = _codec("ConsumerGroupDescribeRequest")
"""API 69 (KIP-848; the members' type: KIP-1099)."""
ConsumerGroupDescribeResponse = _codec("ConsumerGroupDescribeResponse")
AlterPartitionRequest = _codec("AlterPartitionRequest")
"""API 56 (KIP-497, KIP-903): a leader proposes in-sync replicas to the controller."""
AlterPartitionResponse = _codec("AlterPartitionResponse")
EnvelopeRequest = _codec("EnvelopeRequest")
"""API 58 (KIP-590): a client's request, forwarded to the controller with the client's principal."""
EnvelopeResponse = _codec("EnvelopeResponse")
BrokerRegistrationRequest = _codec("BrokerRegistrationRequest")
"""API 62 (KIP-631)."""
BrokerRegistrationResponse = _codec("BrokerRegistrationResponse")
BrokerHeartbeatRequest = _codec("BrokerHeartbeatRequest")
"""API 63 (KIP-631)."""
BrokerHeartbeatResponse = _codec("BrokerHeartbeatResponse")
AllocateProducerIdsRequest = _codec("AllocateProducerIdsRequest")
"""API 67 (KIP-730)."""
AllocateProducerIdsResponse = _codec("AllocateProducerIdsResponse")

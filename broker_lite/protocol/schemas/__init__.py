"""Messages that kafka-python has no schema for, in the form of Kafka's own schema files.

Theory of operation: kafka-python makes a codec of each class below from the JSON file of the same name. A field says
from which version on it exists; what the messages are for is in `docs/groups.md`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    ApiMessage: Any
else:
    from kafka.protocol.api_message import ApiMessage

__all__ = [
    "ConsumerGroupDescribeRequest",
    "ConsumerGroupDescribeResponse",
    "ConsumerGroupHeartbeatRequest",
    "ConsumerGroupHeartbeatResponse",
]


class ConsumerGroupHeartbeatRequest(ApiMessage, load_json=__name__):
    """API 68 (KIP-848)."""


class ConsumerGroupHeartbeatResponse(ApiMessage, load_json=__name__):
    """API 68 (KIP-848)."""


class ConsumerGroupDescribeRequest(ApiMessage, load_json=__name__):
    """API 69 (KIP-848)."""


class ConsumerGroupDescribeResponse(ApiMessage, load_json=__name__):
    """API 69 (KIP-848, KIP-1099)."""

"""Topic ids as text, as Kafka's tools show them."""

from __future__ import annotations

import base64
import uuid


def topic_id_text(topic_id: uuid.UUID | None) -> str:
    """Return a topic id as Kafka's tools show it: 22 characters of URL-safe base64; "" if the broker has none."""
    if topic_id is None or topic_id.int == 0:
        return ""
    return base64.urlsafe_b64encode(topic_id.bytes).rstrip(b"=").decode()


def topic_id_from_text(text: str) -> uuid.UUID:
    """Parse the result of `topic_id_text`."""
    return uuid.UUID(bytes=base64.urlsafe_b64decode(text + "==")) if text else uuid.UUID(int=0)

"""A table for each topic: names with ``{topic}``, and the appId under which each table keeps its offsets."""

from __future__ import annotations

from typing import Final

TOPIC: Final = "{topic}"


def is_by_topic(text: str) -> bool:
    """Whether a name is one for each topic."""
    return TOPIC in text


def of_topic(text: str, topic: str) -> str:
    """Return the name of a topic's own."""
    return text.replace(TOPIC, topic)


def app_id_of_topic(app_id: str, topic: str) -> str:
    """Return the appId of a topic's own: where ``{topic}`` says, or ``<appId>.<topic>``."""
    return of_topic(app_id, topic) if is_by_topic(app_id) else f"{app_id}.{topic}"

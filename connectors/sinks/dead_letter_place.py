"""The option ``deadLetters`` of both sinks: where rows go that are dead letters."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sparkonce.offset_store.locations import Location

TOPIC, TABLE = "topic:", "table:"
"""Prefixes of the option ``deadLetters``."""
DOC = (
    "where rows go whose column `_dead_letter` is not null (see sparkonce.mark): topic:<name>, or "
    "table:<path of a Delta table>"
)

_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")


@dataclass(frozen=True, slots=True)
class DeadLetterPlace:
    """A topic or a Delta table, one of the two."""

    topic: str | None = None
    table: Location | None = None

    @classmethod
    def parse(cls, text: str) -> DeadLetterPlace:
        """Read ``topic:<name>`` or ``table:<path>``.

        Raises:
            ValueError: if the text is anything else.
        """
        kind, name = text[: len(TOPIC)], text[len(TOPIC) :].strip()
        if kind == TOPIC and name:
            return cls(topic=topic_name(name))
        if kind == TABLE and name:
            return cls(table=Location.parse(name))
        raise ValueError("expected topic:<name> or table:<path of a Delta table>")

    def __str__(self) -> str:
        return f"{TABLE}{self.table}" if self.topic is None else f"{TOPIC}{self.topic}"


def letters_group(app_id: str) -> str:
    """Return the consumer group with the offsets of an application's dead letters, where these go to a topic."""
    return f"{app_id}-dead-letters"


def topic_name(text: str) -> str:
    """Read a topic's name by the rules of Kafka's `Topic.validate`.

    Raises:
        ValueError: if it is none.
    """
    if text in (".", "..") or _TOPIC_NAME.fullmatch(text) is None:
        raise ValueError(
            "a topic's name has 1 to 249 letters, digits, dots, underscores and hyphens, and is not . or .."
        )
    return text

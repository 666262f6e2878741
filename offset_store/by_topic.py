"""A table for each topic: names with ``{topic}``, and the appId under which each table keeps its offsets.

Where a pattern chooses the topics, a name may have its groups too: ``{1}``, ``{2}``, … and ``{name}``. In place of a
name with ``{topic}``, a JSON object may have the path of each topic's table.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

TOPIC_KEY: Final = "topic"
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
"""What Kafka allows (`org.apache.kafka.common.internals.Topic`), so a broker's answer leads into no other folder."""


_TABLES = re.compile(r'([a-z]+:)?(\{\s*".*\})', re.DOTALL)


@lru_cache(maxsize=8)
def tables_by_topic(text: str) -> Mapping[str, str] | None:
    """Return the path of each topic's table if a text is a JSON object of these, also after ``delta:``; else None.

    Raises:
        ValueError: if it begins as one, and is something else.
    """
    found = _TABLES.fullmatch(text.strip())
    if found is None:
        return None
    try:
        tables = json.loads(found[2])
    except ValueError as error:
        raise ValueError(f"{text!r} is not the JSON object that it begins as: {error}") from None
    if not all(isinstance(path, str) and path for path in tables.values()):
        raise ValueError(f"{text!r}: expected a path for each topic")
    return {topic: f"{found[1] or ''}{path}" for topic, path in tables.items()}


def placeholders(text: str) -> list[str]:
    """Return what stands in braces."""
    return _PLACEHOLDER.findall(text)


@dataclass(frozen=True, slots=True)
class TopicNames:
    """What names with ``{topic}``, or with groups of the pattern that chooses the topics, are for each topic."""

    pattern: re.Pattern[str] | None = None

    @property
    def keys(self) -> frozenset[str]:
        """What may stand in braces; other braces are kept as they are."""
        if self.pattern is None:
            return frozenset([TOPIC_KEY])
        return frozenset([TOPIC_KEY, *map(str, range(1, self.pattern.groups + 1)), *self.pattern.groupindex])

    def are_in(self, text: str) -> bool:
        """Whether a name is one for each topic."""
        return tables_by_topic(text) is not None or not self.keys.isdisjoint(placeholders(text))

    def of(self, text: str, topic: str, not_allowed: re.Pattern[str] | None = None) -> str:
        """Return the name of a topic's own, with ``_`` for what is not allowed in the parts that are filled in.

        A topic that the pattern does not find stands for all: it is each of the groups.

        Raises:
            ValueError: if a part would be no name of a file, or a topic has none among the tables of all.
        """
        tables = tables_by_topic(text)
        if tables is not None:
            if topic not in tables:
                raise ValueError(f"topic {topic} has no table: the tables that are named are those of other topics")
            return tables[topic]
        values = self._values(topic)

        def value(found: re.Match[str]) -> str:
            if found[1] not in values:
                return found[0]
            part = values[found[1]]
            if part in ("", ".", "..") or not _TOPIC_NAME.fullmatch(part):
                raise ValueError(
                    f"topic {topic}: {found[0]} is {part!r}, which is no name of a table: leave such topics out of the "
                    "pattern, or use {topic}"
                )
            return part if not_allowed is None else not_allowed.sub("_", part)

        return _PLACEHOLDER.sub(value, text)

    def check_apart(self, text: str, topics: Iterable[str]) -> None:
        """Refuse topics with one name: else nobody notices before rows of one are in the table of the other.

        Raises:
            ValueError: if there are any; those that have no name have no table, either.
        """
        known: dict[str, str] = {}
        for topic in sorted(topics):
            with suppress(ValueError):
                name = self.of(text, topic)
                if (other := known.setdefault(name, topic)) != topic:
                    break
        else:
            return
        raise ValueError(
            f"topics {other} and {topic} have one table, {name.removeprefix('delta:')}: let its place have what tells "
            "them apart, or leave one of them out"
        )

    def app_id(self, app_id: str, topic: str) -> str:
        """Return the appId of a topic's own: where a placeholder says, or ``<appId>.<topic>``."""
        return self.of(app_id, topic) if self.are_in(app_id) else f"{app_id}.{topic}"

    def _values(self, topic: str) -> dict[str, str]:
        if self.pattern is None:
            return {TOPIC_KEY: topic}
        found = self.pattern.search(topic)
        if found is None:
            return dict.fromkeys(self.keys, topic)
        groups = {str(number): text or "" for number, text in enumerate(found.groups(), 1)}
        return groups | {key: text or "" for key, text in found.groupdict().items()} | {TOPIC_KEY: topic}

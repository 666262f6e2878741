"""Which topics and partitions a query reads: by name, by pattern, or one by one.

Exactly one of ``subscribe``, ``subscribePattern`` and ``assign`` selects them, as in Spark's connector.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sparkonce.connectors.kafka_source.java_regex import compile_java_pattern
from sparkonce.options import OptionError

Partitions = Mapping[str, tuple[int, ...]]
OPTION_NAMES = ("subscribe", "subscribePattern", "assign")


@dataclass(frozen=True, slots=True)
class TopicPattern:
    """A pattern in Java's syntax. A topic is read if the pattern is found anywhere in its name."""

    text: str
    compiled: re.Pattern[str]

    def finds(self, topic: str) -> bool:
        """Whether a topic matches, as in Spark (``Regex.findFirstIn`` in its ConsumerStrategy)."""
        return self.compiled.search(topic) is not None


def topics(text: str) -> tuple[str, ...]:
    """Read option ``subscribe``."""
    found = tuple(sorted({part.strip() for part in text.split(",") if part.strip()}))
    if not found:
        raise ValueError("expected topics separated by commas, there are no topics to subscribe to")
    return found


def pattern(text: str) -> TopicPattern:
    """Read option ``subscribePattern``."""
    stripped = text.strip()
    if not stripped:
        raise ValueError("expected a regular expression in Java's syntax, the pattern to subscribe is empty")
    return TopicPattern(stripped, compile_java_pattern(stripped))


def assignment(text: str) -> Partitions:
    """Read option ``assign``."""
    expected = 'expected JSON such as {"topicA":[0,1],"topicB":[2]}, there are no topic-partitions to assign'
    try:
        assigned = {topic: tuple(sorted(set(partitions))) for topic, partitions in json.loads(text).items()}
    except (ValueError, AttributeError, TypeError) as error:
        raise ValueError(expected) from error
    numbers = [partition for partitions in assigned.values() for partition in partitions]
    if not numbers or not all(type(number) is int and number >= 0 for number in numbers):
        raise ValueError(expected)
    return assigned


def check_choice(values: Mapping[str, Any], format_name: str) -> None:
    """Check that exactly one of the three options is set. Raises OptionError if none is, or several are."""
    chosen = [name for name in OPTION_NAMES if values[name] is not None]
    listed = ", ".join(OPTION_NAMES)
    if not chosen:
        raise OptionError(
            f"{format_name}: one of the following options must be specified: {listed}; "
            'for example option("subscribe", "topicA")'
        )
    if len(chosen) > 1:
        raise OptionError(
            f"{format_name}: only one of the following options can be specified: {listed}; found {' and '.join(chosen)}"
        )

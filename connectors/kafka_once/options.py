"""The options of the format ``kafka_once`` as a source: names and rules of Spark's Kafka connector, and three of ours.

What can be checked without a broker is checked here, when the DataFrame is made.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from connectors.kafka_once.client import EARLIEST, LATEST
from connectors.kafka_once.settings import ClientSettings, read_settings
from connectors.options import (
    STORAGE_PREFIX,
    Option,
    OptionError,
    OptionSet,
    boolean,
    not_negative,
    positive,
    storage_options,
)
from offset_store import check_spec

FORMAT = "kafka_once"

Partitions = Mapping[str, tuple[int, ...]]
SpecificOffsets = Mapping[tuple[str, int], int]


@dataclass(frozen=True, slots=True)
class OffsetRule:
    """Where to begin or end: LATEST or EARLIEST for every partition, or an offset for each one."""

    everywhere: int | None = None
    each: SpecificOffsets = field(default_factory=dict)


def _offset_rule(text: str) -> OffsetRule:
    word = text.strip().lower()
    if word in ("earliest", "latest"):
        return OffsetRule(EARLIEST if word == "earliest" else LATEST)
    expected = 'expected earliest, latest, or JSON such as {"topicA":{"0":23,"1":-1}}, -1 latest, -2 earliest'
    try:
        each = {
            (topic, int(partition)): offset
            for topic, partitions in json.loads(text).items()
            for partition, offset in partitions.items()
        }
    except (ValueError, AttributeError, TypeError) as error:
        raise ValueError(expected) from error
    if not each or not all(type(offset) is int and offset >= EARLIEST for offset in each.values()):
        raise ValueError(expected)
    return OffsetRule(None, each)


def _topics(text: str) -> tuple[str, ...]:
    topics = tuple(sorted({part.strip() for part in text.split(",") if part.strip()}))
    if not topics:
        raise ValueError("expected topics separated by commas")
    return topics


def _assigned(text: str) -> Partitions:
    expected = 'expected JSON such as {"topicA":[0,1],"topicB":[2]}'
    try:
        assigned = {topic: tuple(sorted(set(partitions))) for topic, partitions in json.loads(text).items()}
    except (ValueError, AttributeError, TypeError) as error:
        raise ValueError(expected) from error
    numbers = [partition for partitions in assigned.values() for partition in partitions]
    if not numbers or not all(type(number) is int and number >= 0 for number in numbers):
        raise ValueError(expected)
    return assigned


OPTIONS = OptionSet(
    FORMAT,
    [
        Option("subscribe", "topics to read, separated by commas", _topics),
        Option("assign", 'partitions to read, as JSON: {"topicA":[0,1]}', _assigned),
        Option(
            "startingOffsets",
            "where a query without a checkpoint begins: earliest, latest, or JSON with an offset for each partition "
            "(-1 latest, -2 earliest). Default: latest for streams, earliest for batches",
            _offset_rule,
        ),
        Option(
            "endingOffsets",
            "where a batch query ends: latest (default) or JSON with an offset for each partition (-1 latest)",
            _offset_rule,
        ),
        Option(
            "offsetStore",
            "where a query without a checkpoint finds the offsets stored for appId, which win over startingOffsets: "
            "delta:<path of the result table, or of the sink's own table of offsets>, or group:<consumer group id>",
        ),
        Option("appId", "the application whose stored offsets are meant; the same as the sink's"),
        Option("source", "the name of this source, where one query has several", str, "kafka"),
        Option("maxOffsetsPerTrigger", "the most records of one micro-batch, shared out by backlog", positive),
        Option("includeHeaders", "whether to add the column headers", boolean, False),
        Option("minPartitions", "the least number of Spark tasks; large ranges are split", positive),
        Option("failOnDataLoss", "whether records that are gone stop the query (or are skipped)", boolean, True),
        Option("fetchOffset.numRetries", "how often a strange offset is asked for again", not_negative, 3),
        Option("fetchOffset.retryIntervalMs", "milliseconds between these questions", not_negative, 10),
        Option("kafkaConsumer.pollTimeoutMs", "milliseconds a task waits for planned records", positive, 120_000),
    ],
    passed_through=("kafka.", STORAGE_PREFIX),
)


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The options of one source, read and checked."""

    settings: ClientSettings
    topics: tuple[str, ...]
    assigned: Partitions | None
    starting: OffsetRule | None
    ending: OffsetRule | None
    offset_store: str | None
    app_id: str | None
    source: str
    max_offsets_per_trigger: int | None
    include_headers: bool
    min_partitions: int | None
    fail_on_data_loss: bool
    offset_retries: int
    offset_retry_interval_ms: int
    poll_timeout_ms: int
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    """May hold keys to a store: never shown."""

    @classmethod
    def read(cls, given: Mapping[str, str]) -> SourceOptions:
        """Check what Spark hands over.

        Raises:
            OptionError: for an option that is unknown, missing, unreadable or in conflict with another.
        """
        values = OPTIONS.read(given)
        chosen = [name for name in ("subscribe", "assign") if values[name] is not None]
        if len(chosen) != 1:
            problem = "only one" if chosen else "one"
            raise OptionError(
                f"{FORMAT}: {problem} of the options subscribe and assign must be given"
                + (f", found {' and '.join(chosen)}" if chosen else ': for example option("subscribe", "topicA")')
            )
        _check_store(values)
        assigned: Partitions | None = values["assign"]
        return cls(
            settings=read_settings(given),
            topics=values["subscribe"] if assigned is None else tuple(sorted(assigned)),
            assigned=assigned,
            starting=values["startingOffsets"],
            ending=values["endingOffsets"],
            offset_store=values["offsetStore"],
            app_id=values["appId"],
            source=values["source"],
            max_offsets_per_trigger=values["maxOffsetsPerTrigger"],
            include_headers=values["includeHeaders"],
            min_partitions=values["minPartitions"],
            fail_on_data_loss=values["failOnDataLoss"],
            offset_retries=values["fetchOffset.numRetries"],
            offset_retry_interval_ms=values["fetchOffset.retryIntervalMs"],
            poll_timeout_ms=values["kafkaConsumer.pollTimeoutMs"],
            storage_options=storage_options(given),
        )

    def for_stream(self) -> OffsetRule:
        """Check what holds for streams only, and give the rule for the start.

        Raises:
            OptionError: if endingOffsets is given.
        """
        if self.ending is not None:
            raise OptionError(f"{FORMAT}: option endingOffsets is not valid in streaming queries; leave it out")
        return self.starting or OffsetRule(LATEST)

    def for_batch(self) -> tuple[OffsetRule, OffsetRule]:
        """Check what holds for batch queries only, and give the rules for start and end.

        Raises:
            OptionError: if the start is latest or the end earliest, or a limit for streams is given.
        """
        starting, ending = self.starting or OffsetRule(EARLIEST), self.ending or OffsetRule(LATEST)
        if LATEST in (starting.everywhere, *starting.each.values()):
            raise OptionError(f"{FORMAT}: startingOffsets can't be latest for batch queries; use earliest or offsets")
        if EARLIEST in (ending.everywhere, *ending.each.values()):
            raise OptionError(f"{FORMAT}: endingOffsets can't be earliest for batch queries; use latest or offsets")
        if self.offset_store is not None:
            raise OptionError(
                f"{FORMAT}: option offsetStore is not valid in batch queries, which keep no offsets; "
                "use startingOffsets"
            )
        return starting, ending


def _check_store(values: Mapping[str, Any]) -> None:
    spec, app_id = values["offsetStore"], values["appId"]
    if not values["source"].strip():
        raise OptionError(f"{FORMAT}: option source is empty; leave it out, or give this source a name of its own")
    if spec is not None and not (app_id or "").strip():
        raise OptionError(
            f"{FORMAT}: option offsetStore needs appId, the same as the sink's: offsets are kept per appId"
        )
    if spec is not None:
        try:
            check_spec(spec)
        except ValueError as error:
            raise OptionError(f"{FORMAT}: option {error}") from error

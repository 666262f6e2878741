"""The options of the format ``kafka_once`` as a source: names and rules of Spark's Kafka connector, and some of ours.

What can be checked without a broker is checked here, when the DataFrame is made.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sparkonce.connectors.kafka_client.client import EARLIEST, LATEST
from sparkonce.connectors.kafka_client.settings import ClientSettings, read_settings
from sparkonce.connectors.kafka_source.offset_rules import (
    OffsetRule,
    check_rules_of_batch,
    chosen_rule,
    each_timestamp_rule,
    offset_rule,
    timestamp_rule,
)
from sparkonce.connectors.kafka_source.topic_choice import (
    Partitions,
    TopicPattern,
    assignment,
    check_choice,
    pattern,
    topics,
)
from sparkonce.connectors.settings.options import (
    STORAGE_PREFIX,
    Option,
    OptionError,
    OptionSet,
    Scope,
    boolean,
    milliseconds,
    not_negative,
    positive,
    storage_options,
)
from sparkonce.connectors.values.options import ROW_OPTIONS, RowOptions, read_rows
from sparkonce.offset_store import check_spec

FORMAT = "kafka_once"
DEFAULT_MAX_TRIGGER_DELAY_MS = 15 * 60 * 1000

_log = logging.getLogger(__name__)


def _strategy(text: str) -> str:
    word = text.strip().lower()
    if word not in ("error", "latest"):
        raise ValueError("expected error or latest")
    return word


_EACH = '{"topicA":{"0":23,"1":-1}}'
_EACH_TIME = '{"topicA":{"0":1700000000000}}'
_WHICH, _WHERE, _HOW_MUCH, _LOSS = "What is read", "Where it begins and ends", "How much at once", "Lost records"
_STORES, _GROUPS = "Offsets kept elsewhere", "Consumer groups"


def group_id(text: str) -> str:
    """Read the id of a consumer group."""
    if not text.strip():
        raise ValueError("expected the id of a consumer group")
    return text


OPTIONS = OptionSet(
    FORMAT,
    [
        Option(
            "subscribe", "topics to read, separated by commas", topics, value="topicA,topicB", spark=True, group=_WHICH
        ),
        Option(
            "subscribePattern",
            "a regular expression in Java's syntax: all topics are read in whose name it is found, also those created "
            "while a stream runs; Kafka's internal topics are not",
            pattern,
            value="pattern",
            spark=True,
            group=_WHICH,
        ),
        Option(
            "assign",
            "partitions to read, as JSON; exactly one of subscribe, subscribePattern and assign is given",
            assignment,
            value='{"topicA":[0,1]}',
            spark=True,
            group=_WHICH,
        ),
        Option(
            "startingTimestamp",
            "where a query without a checkpoint begins: at the first record of each partition with this timestamp or "
            "a later one, in milliseconds since 1970. Wins over startingOffsetsByTimestamp and startingOffsets",
            timestamp_rule("startingTimestamp"),
            value="milliseconds since 1970",
            spark=True,
            group=_WHERE,
        ),
        Option(
            "startingOffsetsByTimestamp",
            "the same with a timestamp for each partition, which must all be named. Wins over startingOffsets",
            each_timestamp_rule("startingOffsetsByTimestamp"),
            value=_EACH_TIME,
            spark=True,
            group=_WHERE,
        ),
        Option(
            "startingOffsets",
            "where a query without a checkpoint begins: earliest, latest, or JSON with an offset for each partition "
            "(-1 latest, -2 earliest), or earliest or latest for a topic; all partitions must be named",
            offset_rule("startingOffsets"),
            default_text="latest; batch: earliest",
            value=f"earliest|latest|{_EACH}",
            spark=True,
            group=_WHERE,
        ),
        Option(
            "startingOffsetsByTimestampStrategy",
            "what happens at the start if a partition has no record of that timestamp or later: error ends the query, "
            "latest begins at the partition's end",
            _strategy,
            "error",
            value="error|latest",
            spark=True,
            group=_WHERE,
        ),
        Option(
            "endingTimestamp",
            "where a batch query ends: before the first record of each partition with this timestamp or a later one, "
            "at the latest offset if there is none. Wins over endingOffsetsByTimestamp and endingOffsets",
            timestamp_rule("endingTimestamp"),
            value="milliseconds since 1970",
            scope=Scope.BATCH,
            spark=True,
            group=_WHERE,
        ),
        Option(
            "endingOffsetsByTimestamp",
            "the same with a timestamp for each partition, which must all be named. Wins over endingOffsets",
            each_timestamp_rule("endingOffsetsByTimestamp"),
            value=_EACH_TIME,
            scope=Scope.BATCH,
            spark=True,
            group=_WHERE,
        ),
        Option(
            "endingOffsets",
            "where a batch query ends: latest, or JSON with an offset for each partition (-1 latest), or latest for a "
            "topic; all partitions must be named",
            offset_rule("endingOffsets"),
            default_text="latest",
            value=f"latest|{_EACH}",
            scope=Scope.BATCH,
            spark=True,
            group=_WHERE,
        ),
        Option(
            "offsetStore",
            "where a query without a checkpoint finds the offsets stored for appId, which win over startingOffsets: "
            "delta:<path of the result table, or of the sink's own table of offsets>, or group:<consumer group id>",
            value="delta:<path>|group:<id>",
            scope=Scope.STREAM,
            group=_STORES,
        ),
        Option(
            "appId",
            "the application whose stored offsets are meant; the same as the sink's",
            value="name",
            scope=Scope.STREAM,
            group=_STORES,
        ),
        Option(
            "source",
            "the name of this source, where one query has several",
            str,
            "kafka",
            value="name",
            scope=Scope.STREAM,
            group=_STORES,
        ),
        Option(
            "checkpointLocation",
            "the query's checkpoint; needed only to carry on one of Spark's own Kafka connector whose batch 0 did not "
            "finish: where it begins is kept there",
            value="path or URI",
            scope=Scope.STREAM,
            group=_STORES,
        ),
        Option(
            "maxOffsetsPerTrigger",
            "about how many records one micro-batch reads at most, shared out by what each partition has. A batch "
            "query ignores it with a warning, as in Spark's connector",
            positive,
            default_text="no limit",
            scope=Scope.STREAM,
            spark=True,
            group=_HOW_MUCH,
        ),
        Option(
            "minOffsetsPerTrigger",
            "how many records there must be before a micro-batch is made; maxTriggerDelay bounds the wait. A batch "
            "query ignores both with a warning, as in Spark's connector",
            positive,
            scope=Scope.STREAM,
            spark=True,
            group=_HOW_MUCH,
        ),
        Option(
            "maxTriggerDelay",
            "how long minOffsetsPerTrigger may hold records back: 90s, 15m, 1h; a number alone is milliseconds",
            milliseconds,
            DEFAULT_MAX_TRIGGER_DELAY_MS,
            default_text="15m",
            value="duration",
            scope=Scope.STREAM,
            spark=True,
            group=_HOW_MUCH,
        ),
        Option(
            "minPartitions",
            "about how many Spark tasks read a batch at least; large ranges are split. Without it, a batch of up to "
            "2,000 records is read by one task, which is quicker",
            positive,
            default_text="one task per Kafka partition",
            spark=True,
            group=_HOW_MUCH,
        ),
        Option(
            "maxRecordsPerPartition",
            "how many records one Spark task reads at most; larger ranges are split, before minPartitions counts",
            positive,
            default_text="no limit",
            spark=True,
            group=_HOW_MUCH,
        ),
        Option(
            "failOnDataLoss",
            "whether records that are gone end the query, or are skipped with a warning",
            boolean,
            True,
            spark=True,
            group=_LOSS,
        ),
        Option(
            "fetchOffset.numRetries",
            "how often a strange offset is asked for again before it counts as loss",
            not_negative,
            3,
            spark=True,
            group=_LOSS,
        ),
        Option(
            "fetchOffset.retryIntervalMs",
            "milliseconds between these questions",
            not_negative,
            10,
            spark=True,
            group=_LOSS,
        ),
        Option(
            "kafkaConsumer.pollTimeoutMs",
            "milliseconds a task waits for records that were planned",
            positive,
            120_000,
            spark=True,
            group=_LOSS,
        ),
        *ROW_OPTIONS,
        Option(
            "commitGroup",
            "a consumer group into which the offsets of finished batches are committed, for tools that show lag",
            group_id,
            value="group id",
            scope=Scope.STREAM,
            group=_GROUPS,
        ),
        Option(
            "groupIdPrefix",
            "accepted and without effect: no consumer group is joined, so none needs a name",
            value="text",
            spark=True,
            group=_GROUPS,
        ),
    ],
    passed_through=("kafka.", STORAGE_PREFIX),
    reference="source",
    elsewhere={
        "topic": "is of the sink; here subscribe names the topics",
        "path": "has no use: load() takes no path here; name the topics with the option subscribe",
        "spark.kafka.*": "is of Spark's configuration, for delegation tokens, which are not supported: log in with "
        "kafka.sasl.mechanism SCRAM-SHA-512, PLAIN or OAUTHBEARER",
    },
)


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The options of one source, read and checked."""

    settings: ClientSettings
    topics: tuple[str, ...]
    assigned: Partitions | None
    pattern: TopicPattern | None
    """Exactly one of the three selects what is read; ``topics`` also names those of ``assigned``."""
    starting: OffsetRule | None
    ending: OffsetRule | None
    latest_if_no_match: bool
    """Whether a starting timestamp without a match means the latest offset; else it is an error."""
    offset_store: str | None
    app_id: str | None
    source: str
    commit_group: str | None
    checkpoint_location: str | None
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_ms: int
    rows: RowOptions
    min_partitions: int | None
    max_records_per_partition: int | None
    fail_on_data_loss: bool
    offset_retries: int
    offset_retry_interval_ms: int
    poll_timeout_ms: int
    group_id: str | None = None
    """kafka.group.id, which has no effect here; if both are set, groupIdPrefix has none even in Spark's connector."""
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    """May hold keys to a store: never shown."""

    @classmethod
    def read(cls, given: Mapping[str, str]) -> SourceOptions:
        """Read and check the options from Spark.

        Raises:
            OptionError: for an option that is unknown, missing, unreadable or in conflict with another.
        """
        values = OPTIONS.read(given)
        check_choice(values, FORMAT)
        _check_limits(values)
        _check_store(values)
        assigned: Partitions | None = values["assign"]
        return cls(
            settings=read_settings(given),
            topics=tuple(sorted(assigned)) if assigned is not None else values["subscribe"] or (),
            assigned=assigned,
            pattern=values["subscribePattern"],
            starting=chosen_rule(values, "starting"),
            ending=chosen_rule(values, "ending"),
            latest_if_no_match=values["startingOffsetsByTimestampStrategy"] == "latest",
            offset_store=values["offsetStore"],
            app_id=values["appId"],
            source=values["source"],
            commit_group=values["commitGroup"],
            checkpoint_location=values["checkpointLocation"],
            max_offsets_per_trigger=values["maxOffsetsPerTrigger"],
            min_offsets_per_trigger=values["minOffsetsPerTrigger"],
            max_trigger_delay_ms=values["maxTriggerDelay"],
            rows=read_rows(values, OPTIONS, given),
            min_partitions=values["minPartitions"],
            max_records_per_partition=values["maxRecordsPerPartition"],
            fail_on_data_loss=values["failOnDataLoss"],
            offset_retries=values["fetchOffset.numRetries"],
            offset_retry_interval_ms=values["fetchOffset.retryIntervalMs"],
            poll_timeout_ms=values["kafkaConsumer.pollTimeoutMs"],
            group_id=next((text for key, text in given.items() if key.lower() == "kafka.group.id"), None),
            storage_options=storage_options(given),
        )

    def for_stream(self) -> OffsetRule:
        """Check the rules for streams only, and return the rule for the start.

        Raises:
            OptionError: if an end is given.
        """
        if self.ending is not None:
            what = "offset" if self.ending.option == "endingOffsets" else "timestamp"
            raise OptionError(
                f"{FORMAT}: option {self.ending.option}: ending {what} not valid in streaming queries; leave it out"
            )
        self._warn_of_group()
        return self.starting or OffsetRule(LATEST, option="startingOffsets")

    def for_batch(self) -> tuple[OffsetRule, OffsetRule]:
        """Check the rules for batch queries only, and return the rules for start and end.

        Raises:
            OptionError: if the start is latest, the end earliest, the start after the end, or an offset store is named.
        """
        starting = self.starting or OffsetRule(EARLIEST, option="startingOffsets")
        ending = self.ending or OffsetRule(LATEST, option="endingOffsets")
        check_rules_of_batch(starting, ending, FORMAT)
        if self.offset_store is not None:
            raise OptionError(
                f"{FORMAT}: option offsetStore is not valid in batch queries, which keep no offsets; "
                "use startingOffsets"
            )
        if self.commit_group is not None:
            raise OptionError(f"{FORMAT}: option commitGroup is not valid in batch queries; leave it out")
        self._warn_of_group()
        for name, value, default in (
            ("maxOffsetsPerTrigger", self.max_offsets_per_trigger, None),
            ("minOffsetsPerTrigger", self.min_offsets_per_trigger, None),
            ("maxTriggerDelay", self.max_trigger_delay_ms, DEFAULT_MAX_TRIGGER_DELAY_MS),
        ):
            if value != default:
                _log.warning("%s: option %s ignored in batch queries", FORMAT, name)
        return starting, ending

    def _warn_of_group(self) -> None:
        if self.group_id is not None:
            _log.warning(
                "%s: kafka.group.id=%s has no effect on what is read: no consumer group is joined, offsets live in "
                "Spark's checkpoint, and groupIdPrefix is ignored as well. Leave it out",
                FORMAT,
                self.group_id,
            )


def _check_limits(values: Mapping[str, Any]) -> None:
    least, most = values["minOffsetsPerTrigger"], values["maxOffsetsPerTrigger"]
    if least is not None and most is not None and least > most:
        raise OptionError(
            f"{FORMAT}: the value of minOffsetsPerTrigger ({least}) is higher than the maxOffsetsPerTrigger ({most}): "
            "lower the one or raise the other"
        )


def _check_store(values: Mapping[str, Any]) -> None:
    spec, app_id = values["offsetStore"], values["appId"]
    if not values["source"].strip():
        raise OptionError(f"{FORMAT}: option source is empty; leave it out, or give this source a name of its own")
    if spec is not None and spec == f"group:{values['commitGroup']}":
        raise OptionError(
            f"{FORMAT}: offsetStore and commitGroup name the same group, where the sink commits already: leave out "
            "commitGroup, or choose another group id for it"
        )
    if spec is not None and not (app_id or "").strip():
        raise OptionError(
            f"{FORMAT}: option offsetStore needs appId, the same as the sink's: offsets are kept per appId"
        )
    if spec is not None:
        try:
            check_spec(spec)
        except ValueError as error:
            raise OptionError(f"{FORMAT}: option {error}") from error

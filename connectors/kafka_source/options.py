"""The options of the format ``kafka_once`` as a source: names and rules of Spark's Kafka connector, and some of ours.

What can be checked without a broker is checked here, when the DataFrame is created.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import repeat

from sparkonce.connectors.kafka_source.offset_rules import (
    OffsetRule,
    check_rules_of_batch,
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
from sparkonce.connectors.values.options import ADD_COLUMNS, RESTART, RowOptions
from sparkonce.connectors.values.read_options import ROW_SETTINGS, read_rows
from sparkonce.connectors.values.registered import is_by_topic, without_values
from sparkonce.kafka.client.client import EARLIEST, LATEST
from sparkonce.kafka.client.settings import ClientSettings, read_settings
from sparkonce.offset_store import check_spec
from sparkonce.offset_store.by_topic import TopicNames
from sparkonce.offset_store.offsets import HAND_OVER, RANGES, SourceOffset
from sparkonce.options import (
    KAFKA_FORMAT,
    KAFKA_PREFIX,
    STORAGE_PREFIX,
    OptionError,
    SettingTable,
    storage_options,
)
from sparkonce.settings import Scope, boolean, camel_case, long, settings_of, text

FORMAT = KAFKA_FORMAT
DEFAULT_MAX_TRIGGER_DELAY_MS = 15 * 60 * 1000

_log = logging.getLogger(__name__)


def _is_latest(text: str) -> bool:
    word = text.strip().lower()
    if word not in ("error", "latest"):
        raise ValueError("expected error or latest")
    return word == "latest"


_UNIT_MICROSECONDS = {
    "us": 1,
    "ms": 1_000,
    "s": 1_000_000,
    "m": 60_000_000,
    "min": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
}


def milliseconds(text: str) -> int:
    """Read a duration as Spark's ``JavaUtils.timeStringAsMs`` does, and return whole milliseconds."""
    found = re.fullmatch(r"([0-9]{1,15})([a-z]*)", text.strip().lower())
    unit = found and _UNIT_MICROSECONDS.get(found[2] or "ms")
    if not found or not unit:
        raise ValueError(
            "expected a time in seconds (s), milliseconds (ms), microseconds (us), minutes (m or min), hours (h) or "
            "days (d), such as 50s, 100ms or 15m"
        )
    return int(found[1]) * unit // 1_000


_EACH = '{"topicA":{"0":23,"1":-1}}'
_EACH_TIME = '{"topicA":{"0":1700000000000}}'
_WHICH, _WHERE, _HOW_MUCH, _LOSS = "What is read", "Where it begins and ends", "How much at once", "Lost records"
_STORES, _GROUPS = "Offsets kept elsewhere", "Consumer groups"


def group_id(text: str) -> str:
    """Read the id of a consumer group."""
    if not text.strip():
        raise ValueError("expected the id of a consumer group")
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """The options of one source, read and checked."""

    subscribed: tuple[str, ...] | None = text(
        None,
        "topics to read, separated by commas",
        name="subscribe",
        parse=topics,
        value="topicA,topicB",
        spark=True,
        group=_WHICH,
    )
    pattern: TopicPattern | None = text(
        None,
        "a regular expression in Java's syntax: all topics whose name contains a match are read, also those created "
        "while a stream runs; Kafka's internal topics are not",
        name="subscribePattern",
        parse=pattern,
        value="pattern",
        spark=True,
        group=_WHICH,
    )
    assigned: Partitions | None = text(
        None,
        "partitions to read, as JSON; exactly one of subscribe, subscribePattern and assign must be set",
        name="assign",
        parse=assignment,
        value='{"topicA":[0,1]}',
        spark=True,
        group=_WHICH,
    )
    starting_timestamp: OffsetRule | None = text(
        None,
        "where a query without a checkpoint begins: at the first record of each partition with this timestamp or "
        "a later one, in milliseconds since 1970. Takes precedence over startingOffsetsByTimestamp and startingOffsets",
        parse=timestamp_rule("startingTimestamp"),
        value="milliseconds since 1970",
        spark=True,
        group=_WHERE,
    )
    starting_offsets_by_timestamp: OffsetRule | None = text(
        None,
        "the same with a timestamp for each partition; all must be named. Takes precedence over startingOffsets",
        parse=each_timestamp_rule("startingOffsetsByTimestamp"),
        value=_EACH_TIME,
        spark=True,
        group=_WHERE,
    )
    starting_offsets: OffsetRule | None = text(
        None,
        "where a query without a checkpoint begins: earliest, latest, or JSON with an offset for each partition "
        "(-1 latest, -2 earliest), or earliest or latest for a topic; all partitions must be named",
        parse=offset_rule("startingOffsets"),
        default_text="latest; batch: earliest",
        value=f"earliest|latest|{_EACH}",
        spark=True,
        group=_WHERE,
    )
    latest_if_no_match: bool = text(
        False,
        "what happens at the start if a partition has no record of that timestamp or later: error stops the query, "
        "latest begins at the partition's end",
        name="startingOffsetsByTimestampStrategy",
        parse=_is_latest,
        default_text="error",
        value="error|latest",
        spark=True,
        group=_WHERE,
    )
    ending_timestamp: OffsetRule | None = text(
        None,
        "where a batch query ends: before the first record of each partition with this timestamp or a later one, "
        "at the latest offset if there is none. Takes precedence over endingOffsetsByTimestamp and endingOffsets",
        parse=timestamp_rule("endingTimestamp"),
        value="milliseconds since 1970",
        scope=Scope.BATCH,
        spark=True,
        group=_WHERE,
    )
    ending_offsets_by_timestamp: OffsetRule | None = text(
        None,
        "the same with a timestamp for each partition; all must be named. Takes precedence over endingOffsets",
        parse=each_timestamp_rule("endingOffsetsByTimestamp"),
        value=_EACH_TIME,
        scope=Scope.BATCH,
        spark=True,
        group=_WHERE,
    )
    ending_offsets: OffsetRule | None = text(
        None,
        "where a batch query ends: latest, or JSON with an offset for each partition (-1 latest), or latest for a "
        "topic; all partitions must be named",
        parse=offset_rule("endingOffsets"),
        default_text="latest",
        value=f"latest|{_EACH}",
        scope=Scope.BATCH,
        spark=True,
        group=_WHERE,
    )
    offset_store: str | None = text(
        None,
        "where a query without a checkpoint finds the offsets stored for appId, which take precedence over "
        "startingOffsets: delta:<path of the result table, or of the sink's own table of offsets>, or "
        "group:<consumer group id>",
        parse=check_spec,
        value="delta:<path>|group:<id>",
        scope=Scope.STREAM,
        group=_STORES,
    )
    into: str | None = text(
        None,
        "the table that the query writes, a path or a name: sparkonce.read_stream sets it, and sparkonce.write_stream "
        "writes there",
        value="path or name",
        scope=Scope.STREAM,
        group=_STORES,
    )
    isolate_tables: bool = boolean(
        False,
        "with a table for each topic: true: a table that refuses its rows does not stop the query; its topic is not "
        "read until its table has all records before the next batch, which another query writes (sparkonce ingest "
        "does that), nor once records of it are lost or while the client must not describe it (Trigger.AvailableNow "
        "reports both as an error at its end, the latter only if the options name the topic), nor while a partition "
        "has no leader; of two topics with one table the second is left out; where a registry's latest schemas are "
        "read, each topic has its own. false: it stops the query",
        scope=Scope.STREAM,
        group=_STORES,
    )
    until_offsets: SourceOffset | None = text(
        None,
        "where a stream with Trigger.AvailableNow ends, at the latest: where another query stands, as its checkpoint "
        "has it. A topic that was created again since stops the query",
        parse=SourceOffset.from_json,
        value="a line of offsets/<batch>",
        scope=Scope.STREAM,
        group=_WHERE,
    )
    app_id: str | None = text(
        None,
        "the application whose stored offsets are used; the same as the sink's",
        value="name",
        scope=Scope.STREAM,
        group=_STORES,
    )
    source: str = text(
        "kafka",
        "the name of this source, if a query has several",
        value="name",
        scope=Scope.STREAM,
        group=_STORES,
    )
    checkpoint_location: str | None = text(
        None,
        "the query's checkpoint; only needed to continue one of Spark's own Kafka connector whose batch 0 did not "
        "finish: its start is stored there",
        value="path or URI",
        scope=Scope.STREAM,
        group=_STORES,
    )
    max_offsets_per_trigger: int | None = long(
        None,
        "about how many records one micro-batch reads at most, divided in proportion to each partition's backlog. A "
        "batch query ignores it with a warning, as in Spark's connector",
        least=1,
        default_text="no limit",
        scope=Scope.STREAM,
        spark=True,
        group=_HOW_MUCH,
    )
    min_offsets_per_trigger: int | None = long(
        None,
        "how many records must be available before a micro-batch starts; maxTriggerDelay bounds the wait. A batch "
        "query ignores both with a warning, as in Spark's connector",
        least=1,
        scope=Scope.STREAM,
        spark=True,
        group=_HOW_MUCH,
    )
    min_offsets_per_topic: int | None = long(
        None,
        "how many records of a topic must be available before a micro-batch reads it, so that a table of each topic "
        "gets larger files; maxTriggerDelay bounds the wait",
        least=1,
        scope=Scope.STREAM,
        group=_HOW_MUCH,
    )
    max_trigger_delay_ms: int = text(
        DEFAULT_MAX_TRIGGER_DELAY_MS,
        "how long minOffsetsPerTrigger or minOffsetsPerTopic may delay records: 90s, 15m, 1h; a plain number is "
        "milliseconds",
        name="maxTriggerDelay",
        parse=milliseconds,
        default_text="15m",
        value="duration",
        scope=Scope.STREAM,
        spark=True,
        group=_HOW_MUCH,
    )
    min_partitions: int | None = long(
        None,
        "about how many Spark tasks read a batch at least; large ranges are split. Without it, a batch of up to "
        "2,000 records is read by one task, which is faster",
        least=1,
        default_text="one task per Kafka partition",
        spark=True,
        group=_HOW_MUCH,
    )
    max_records_per_partition: int | None = long(
        None,
        "how many records one Spark task reads at most; larger ranges are split, before minPartitions applies",
        least=1,
        default_text="no limit",
        spark=True,
        group=_HOW_MUCH,
    )
    hands_over_ranges: bool = text(
        False,
        "what Spark gets from this source: the records (rows), or one row for each range of records to read (ranges). "
        "Then the sink, delta_once or kafka_once, reads them in its own tasks and they never pass through the JVM, "
        "which is several times as fast; no operator may be between source and sink (docs/direct.md)",
        name=HAND_OVER,
        choices=("rows", RANGES),
        parse=RANGES.__eq__,
        default_text="rows",
        scope=Scope.STREAM,
        group=_HOW_MUCH,
    )
    split_partitions: bool = boolean(
        False,
        "with handOver=ranges, whether several tasks may read a large range of one Kafka partition (128 MiB or "
        "4,000,000 records each). For a Delta table, where rows have no order; a Kafka sink would mix the order of the "
        "partition's records. Small ranges always share a task, so that few small files are written",
        scope=Scope.STREAM,
        group=_HOW_MUCH,
    )
    fail_on_data_loss: bool = boolean(
        True,
        "whether missing records fail the query, or are skipped with a warning",
        spark=True,
        group=_LOSS,
    )
    offset_retries: int = long(
        3,
        "how often a suspicious offset is requested again before it counts as data loss",
        name="fetchOffset.numRetries",
        spark=True,
        group=_LOSS,
    )
    offset_retry_interval_ms: int = long(
        10,
        "milliseconds between these retries",
        name="fetchOffset.retryIntervalMs",
        spark=True,
        group=_LOSS,
    )
    poll_timeout_ms: int = long(
        120_000,
        "milliseconds a task waits for records that were planned",
        name="kafkaConsumer.pollTimeoutMs",
        least=1,
        spark=True,
        group=_LOSS,
    )
    commit_group: str | None = text(
        None,
        "a consumer group to which the offsets of finished batches are committed, for lag tools",
        parse=group_id,
        value="group id",
        scope=Scope.STREAM,
        group=_GROUPS,
    )
    group_id_prefix: str | None = text(
        None,
        "accepted without effect: no consumer group is joined, so none needs a name",
        value="text",
        spark=True,
        group=_GROUPS,
    )
    settings: ClientSettings
    rows: RowOptions
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
        OPTIONS.check(given)
        values = OPTIONS.values(given, _SETTINGS)
        fields = {"subscribe": "subscribed", "subscribePattern": "pattern", "assign": "assigned"}
        check_choice({name: values[field] for name, field in fields.items()}, FORMAT)
        options = cls(
            **values,
            settings=read_settings(given),
            rows=read_rows(
                OPTIONS, without_values(given) if is_by_topic(given) else given, may_select=values["hands_over_ranges"]
            ),
            group_id=next((text for key, text in given.items() if key.lower() == "kafka.group.id"), None),
            storage_options=storage_options(given),
        )
        _check_limits(options)
        _check_store(options)
        _check_evolution(options)
        return options

    def pauses_s(self) -> Iterator[float]:
        """Return the pauses between attempts for offsets, as many as there are."""
        return repeat(self.offset_retry_interval_ms / 1000, self.offset_retries)

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics that the options name; none with a pattern."""
        return (self.subscribed or ()) if self.assigned is None else tuple(sorted(self.assigned))

    @property
    def starting(self) -> OffsetRule | None:
        """Where to begin, by the first of three options that is set."""
        return self.starting_timestamp or self.starting_offsets_by_timestamp or self.starting_offsets

    @property
    def ending(self) -> OffsetRule | None:
        """Where to end, by the first of three options that is set."""
        return self.ending_timestamp or self.ending_offsets_by_timestamp or self.ending_offsets

    @property
    def names(self) -> TopicNames:
        """What names for each topic are, such as that of ``offsetStore``."""
        return TopicNames(None if self.pattern is None else self.pattern.compiled)

    @property
    def has_table_for_each_topic(self) -> bool:
        """Whether offsets are stored in a table for each topic."""
        return self.names.are_in(self.offset_store or "")

    def for_stream(self) -> OffsetRule:
        """Check the rules for streams only, and return the rule for the start.

        Raises:
            OptionError: if an end is set, or tables are to be isolated that the query does not have.
        """
        if self.ending is not None:
            what = "offset" if self.ending.option == "endingOffsets" else "timestamp"
            raise OptionError(
                f"{FORMAT}: option {self.ending.option}: ending {what} not valid in streaming queries; leave it out"
            )
        if self.isolate_tables and not (self.hands_over_ranges and self.has_table_for_each_topic):
            raise OptionError(
                f"{FORMAT}: option isolateTables is for a table for each topic: set {HAND_OVER}={RANGES}, and "
                "offsetStore to the sink's path, such as delta:/data/tables/{topic}"
            )
        return self.starting or OffsetRule(LATEST, option="startingOffsets")

    @property
    def reads_all(self) -> bool:
        """Whether a stream begins each topic with its first record."""
        return self.for_stream().everywhere == EARLIEST

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
        if self.hands_over_ranges:
            raise OptionError(
                f"{FORMAT}: option {HAND_OVER}={RANGES} is for streams, whose sink reads the ranges; leave it out of "
                "batch queries (spark.read)"
            )
        for name, value, default in (
            ("maxOffsetsPerTrigger", self.max_offsets_per_trigger, None),
            ("minOffsetsPerTrigger", self.min_offsets_per_trigger, None),
            ("minOffsetsPerTopic", self.min_offsets_per_topic, None),
            ("maxTriggerDelay", self.max_trigger_delay_ms, DEFAULT_MAX_TRIGGER_DELAY_MS),
        ):
            if value != default:
                _log.warning("%s: option %s ignored in batch queries", FORMAT, name)
        return starting, ending

    def warn_of_group(self) -> None:
        """Log that kafka.group.id has no effect; for the one process that plans, since several read the options."""
        if self.group_id is not None:
            _log.warning(
                "%s: kafka.group.id=%s has no effect on what is read: no consumer group is joined, offsets are in "
                "Spark's checkpoint, and groupIdPrefix is ignored as well. Leave it out",
                FORMAT,
                self.group_id,
            )


_SETTINGS = settings_of(SourceOptions, camel_case)
OPTIONS = SettingTable(
    FORMAT,
    {**_SETTINGS, **ROW_SETTINGS},
    "source",
    passed_through=(f"{KAFKA_PREFIX}*", f"{STORAGE_PREFIX}*"),
    elsewhere={
        "topic": "is of the sink; here subscribe names the topics",
        "path": "is not used: load() takes no path here; name the topics with the option subscribe",
        "spark.kafka.*": "is of Spark's configuration, for delegation tokens, which are not supported: log in with "
        "kafka.sasl.mechanism SCRAM-SHA-512, PLAIN or OAUTHBEARER",
    },
)


def _check_limits(options: SourceOptions) -> None:
    most = options.max_offsets_per_trigger
    for name, least in (
        ("minOffsetsPerTrigger", options.min_offsets_per_trigger),
        ("minOffsetsPerTopic", options.min_offsets_per_topic),
    ):
        if least is not None and most is not None and least > most:
            raise OptionError(
                f"{FORMAT}: the value of {name} ({least}) is higher than the maxOffsetsPerTrigger ({most}): "
                "lower the former or raise the latter"
            )


def _check_store(options: SourceOptions) -> None:
    spec = options.offset_store
    if not options.source.strip():
        raise OptionError(f"{FORMAT}: option source is empty; leave it out, or set a name for this source")
    if spec is None:
        return
    if spec == f"group:{options.commit_group}":
        raise OptionError(
            f"{FORMAT}: offsetStore and commitGroup name the same group, where the sink commits already: leave out "
            "commitGroup, or choose another group id for it"
        )
    if not (options.app_id or "").strip():
        raise OptionError(
            f"{FORMAT}: option offsetStore needs appId, the same as the sink's: offsets are kept per appId"
        )


def _check_evolution(options: SourceOptions) -> None:
    if options.rows.schema_evolution == ADD_COLUMNS and not options.hands_over_ranges:
        raise OptionError(
            f"{FORMAT}: schemaEvolution={ADD_COLUMNS} needs {HAND_OVER}={RANGES}, where the sink decodes: through "
            "Spark the columns of a DataFrame are fixed before its query starts, so none can be added while it runs. "
            f"Set {HAND_OVER}={RANGES}, or schemaEvolution={RESTART}, which stops the query for a newer schema and "
            "reads it after the restart"
        )

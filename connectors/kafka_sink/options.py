"""The options of the format ``kafka_once`` as a sink: those of Spark's Kafka sink, and ours, declared once.

Streams and batches accept different ones: only a stream has offsets, so only a stream can deliver exactly once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sparkonce.connectors.schema_registry.settings import REGISTRY_SETTINGS, RegistrySettings, read_registry
from sparkonce.connectors.sinks.dead_letters import DeadLetterPlace, topic_name
from sparkonce.connectors.values.options import AVRO, BINARY, JSON_SCHEMA, PROTOBUF
from sparkonce.exactly_once.guarantee import Guarantee
from sparkonce.kafka.client.producer_settings import ProducerSettings, read_producer
from sparkonce.kafka.client.settings import ClientSettings
from sparkonce.offset_store import DELTA, GROUP, check_spec
from sparkonce.offset_store.locations import Location
from sparkonce.options import (
    KAFKA_FORMAT,
    KAFKA_PREFIX,
    SOURCE_PREFIX,
    SQL_DOC,
    STORAGE_PREFIX,
    OptionError,
    SettingTable,
    storage_options,
)
from sparkonce.settings import REQUIRED, Scope, boolean, camel_case, settings_of, text

DEFAULT_DECISION_TOPIC = "sparkonce-decisions"
FORMAT = KAFKA_FORMAT

_FORMATS = (BINARY, AVRO, PROTOBUF, JSON_SCHEMA)
_WHERE, _HOW, _TYPED, _TWICE = "Where rows go", "What is written", "Typed columns", "Exactly once"


def _named(text: str) -> str:
    if not text.strip():
        raise ValueError("it is empty; choose a name that is stable over restarts")
    return text


@dataclass(frozen=True, slots=True)
class EncodedColumn:
    """A column that is written with a schema, and what the options say of it."""

    column: str
    form: str
    schema: str | None
    subject: str | None
    message: str | None = None
    """With Protobuf, the name of the message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaBatchOptions:
    """The options of one ``df.write``, read and checked."""

    topic: str | None = text(
        None,
        "the topic of all rows. Without it the column `topic` names one for each row",
        parse=topic_name,
        value="topic",
        spark=True,
        group=_WHERE,
    )
    guarantee: Guarantee | None = text(
        None,
        "what a crash may do to the rows: at-most-once, at-least-once or exactly-once. A batch (`df.write`) is "
        "always at-least-once",
        name="deliveryGuarantee",
        choices=tuple(guarantee.value for guarantee in Guarantee),
        parse=Guarantee,
        default_text=f"{Guarantee.EXACTLY_ONCE.value}; batch: {Guarantee.AT_LEAST_ONCE.value}",
        group=_TWICE,
    )
    app_id: str = text(
        "",
        "a name for this pipeline, stable over restarts: decisions and offsets are kept under it. A batch needs none",
        parse=_named,
        value="name",
        default_text="required for streams",
        group=_TWICE,
    )
    include_headers: bool = boolean(
        True,
        "whether a column `headers` is written, if there is one. (Spark's sink always writes it.)",
        group=_HOW,
    )
    value_format: str = text(
        BINARY,
        "how the column value becomes bytes: it is bytes or text (binary), or a column of any type that is written "
        "with a schema of schemaRegistry.url, whose id comes first (avro, protobuf, json-schema)",
        choices=_FORMATS,
        group=_TYPED,
    )
    value_schema: str | None = text(
        None,
        "the schema that values are written with: JSON as Avro or JSON Schema has it, the text of a .proto file or its "
        "descriptor in base64, or file:PATH",
        default_text="one made from the column's type, or with autoRegister=false the subject's latest",
        value="schema",
        group=_TYPED,
    )
    value_subject: str | None = text(
        None, "the subject of that schema", default_text="TOPIC-value", value="subject", group=_TYPED
    )
    value_message: str | None = text(
        None,
        "with protobuf, the name of the message that values are written as; of a schema that is made from the column's "
        "type, the name that it gets, with its package",
        default_text="the first one of the schema; of one that is made, the subject's name: DeparturesValue",
        value="message",
        group=_TYPED,
    )
    key_format: str = text(BINARY, "as valueFormat, for the column key", choices=_FORMATS, group=_TYPED)
    key_schema: str | None = text(
        None, "as valueSchema, for keys", default_text="as valueSchema", value="schema", group=_TYPED
    )
    key_subject: str | None = text(
        None, "the subject of that schema", default_text="TOPIC-key", value="subject", group=_TYPED
    )
    key_message: str | None = text(
        None, "as valueMessage, for keys", default_text="as valueMessage", value="message", group=_TYPED
    )
    auto_register: bool = boolean(
        True,
        "whether schemas are registered that the registry does not have; it refuses those that are not compatible. "
        "Else they are looked up, and must be there",
        group=_TYPED,
    )
    registry: RegistrySettings | None = None
    client: ClientSettings = field(repr=False)
    producer: ProducerSettings

    @property
    def encoded(self) -> tuple[EncodedColumn, ...]:
        """The columns that are written with a schema."""
        value = EncodedColumn("value", self.value_format, self.value_schema, self.value_subject, self.value_message)
        key = EncodedColumn("key", self.key_format, self.key_schema, self.key_subject, self.key_message)
        return tuple(each for each in (value, key) if each.form != BINARY)

    @classmethod
    def read(cls, given: Mapping[str, str]) -> KafkaBatchOptions:
        """Check ``df.write``'s options. Raises OptionError if one is unknown, unreadable, for streams or at odds."""
        BATCH_OPTIONS.check(given)
        values = {**BATCH_OPTIONS.values(given, _BATCH), "registry": read_registry(BATCH_OPTIONS, given)}
        guarantee = values["guarantee"]
        if guarantee not in (None, Guarantee.AT_LEAST_ONCE):
            raise OptionError(
                f"{FORMAT}: option deliveryGuarantee={guarantee.value} is for writeStream: a batch (df.write) has no "
                "offsets that would distinguish its rows from those of an earlier attempt, and Spark retries failed "
                "tasks, so it is at-least-once. Leave the option out, or use readStream and writeStream with "
                "trigger(availableNow=True)"
            )
        client, producer = read_producer(given, Guarantee.AT_LEAST_ONCE.keeping)
        options = cls(client=client, producer=producer, **values)
        _check_encoded(options, given)
        return options


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSinkOptions(KafkaBatchOptions):
    """The options of one streaming query, read and checked."""

    guarantee: Guarantee
    checkpoint: str = text(
        REQUIRED,
        "Spark's checkpoint directory, as an option of the query: set by Spark configuration alone it does not reach "
        "the sink, which reads each batch's offsets from it",
        name="checkpointLocation",
        parse=_named,
        value="path",
        scope=Scope.STREAM,
        spark=True,
        group=_TWICE,
    )
    offset_store: str = text(
        "",
        "where the source's offsets are kept: `group:<id>`, a Kafka consumer group, or `delta:<path>`, a Delta table "
        "of offsets. With exactly-once it is a group",
        parse=check_spec,
        value="group:<id>|delta:<path>",
        default_text="group:<appId>",
        scope=Scope.STREAM,
        group=_TWICE,
    )
    atomic_visibility: bool = boolean(
        False,
        "exactly-once: all rows of a micro-batch become visible at once, not task by task. They pass "
        "through files beside the checkpoint and one producer on the driver, which is slower",
        scope=Scope.STREAM,
        group=_TWICE,
    )
    decision_topic: str = text(
        DEFAULT_DECISION_TOPIC,
        "exactly-once: the topic that records which transactions belong to the result; created if missing. The "
        "same for all restarts of a pipeline",
        parse=topic_name,
        value="topic",
        scope=Scope.STREAM,
        group=_TWICE,
    )
    sql: str | None = text(
        None,
        SQL_DOC,
        value="SELECT … FROM records",
        scope=Scope.STREAM,
        group=_HOW,
    )
    dead_letters: DeadLetterPlace | None = text(
        None,
        "the destination of rows whose column `_dead_letter` is not null: `topic:<name>` or `table:<path>`, a Delta "
        "table",
        parse=DeadLetterPlace.parse,
        value="topic:<name>|table:<path>",
        scope=Scope.STREAM,
        group=_WHERE,
    )
    mirror: bool | None = boolean(
        None,
        "with handOver=ranges on the source: whether records are copied as they are, with key, value, headers, "
        "timestamp and the number of their partition, and record batches as a whole where they can be",
        default_text="true if the source has handOver=ranges and no options about columns and values, else false",
        scope=Scope.STREAM,
        group=_HOW,
    )
    keep_partitions: bool | None = boolean(
        None,
        "of a mirror: whether records keep the number of their partition; else the sink chooses it, by their keys",
        default_text="true",
        scope=Scope.STREAM,
        group=_HOW,
    )
    recodes: bool = False
    """Whether kafka.compression.type is set: a mirror keeps the codec of batches otherwise."""
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    """May hold keys to a store: never shown."""

    @property
    def group(self) -> str | None:
        """The consumer group that stores the offsets, if one does."""
        return self.offset_store.removeprefix(GROUP) if self.offset_store.startswith(GROUP) else None

    @classmethod
    def read(cls, given: Mapping[str, str]) -> KafkaSinkOptions:
        """Check ``writeStream``'s options. Raises OptionError if one is unknown, missing, unreadable or at odds."""
        OPTIONS.check(given)
        values = {**OPTIONS.values(given, {**_BATCH, **_STREAM}), "registry": read_registry(OPTIONS, given)}
        if not values["app_id"]:
            raise OptionError(f"{FORMAT}: option appId is required: {OPTIONS.settings['appId'].documentation}")
        values["guarantee"] = values["guarantee"] or Guarantee.EXACTLY_ONCE
        values["offset_store"] = values["offset_store"] or GROUP + values["app_id"]
        client, producer = read_producer(given, values["guarantee"].keeping)
        recodes = f"{KAFKA_PREFIX}compression.type" in {name.lower() for name in given}
        options = cls(
            client=client, producer=producer, recodes=recodes, storage_options=storage_options(given), **values
        )
        _check_encoded(options, given)
        _check_guarantee(options)
        _check_topics(options)
        _check_storage(given, options)
        return options


_BATCH, _STREAM = settings_of(KafkaBatchOptions, camel_case), settings_of(KafkaSinkOptions, camel_case)

_ELSEWHERE = {
    "path": "has no use: start() and save() take no path here, and toTable (which passes the table's folder) creates a "
    "table that nothing can read; name the topic with the option topic",
    "spark.kafka.*": "is of Spark's configuration, for delegation tokens, which are not supported: log in with "
    "kafka.sasl.mechanism SCRAM-SHA-512, PLAIN or OAUTHBEARER",
    "partitionBy": "is for tables; a column partition selects the topic partition of a row",
}

OPTIONS = SettingTable(
    FORMAT,
    {**_BATCH, **_STREAM, **REGISTRY_SETTINGS},
    "kafka-sink",
    passed_through=(f"{STORAGE_PREFIX}*", f"{KAFKA_PREFIX}*", f"{SOURCE_PREFIX}*", "queryName"),
    elsewhere=_ELSEWHERE,
)
"""The options of ``writeStream``."""

BATCH_OPTIONS = SettingTable(
    FORMAT,
    {**_BATCH, **REGISTRY_SETTINGS},
    "kafka-sink",
    passed_through=(f"{KAFKA_PREFIX}*",),
    elsewhere={
        **_ELSEWHERE,
        **dict.fromkeys(_STREAM, "is for writeStream: a batch (df.write) has no offsets to keep; leave it out"),
    },
)
"""The options of ``df.write``."""


def _check_encoded(options: KafkaBatchOptions, given: Mapping[str, str]) -> None:
    """Reject options about schemas that would have no effect, and formats without a registry."""
    named = {name.lower() for name in given}
    for column, form in (("value", options.value_format), ("key", options.key_format)):
        if form != BINARY and options.registry is None:
            raise OptionError(f"{FORMAT}: option {column}Format={form} needs schemaRegistry.url, which has the schemas")
        useless = [
            name for name in (f"{column}Schema", f"{column}Subject", f"{column}Message") if name.lower() in named
        ]
        if form == BINARY and useless:
            raise OptionError(
                f"{FORMAT}: option {useless[0]} is for typed columns: set {column}Format=avro, protobuf or json-schema "
                "too"
            )
        if form != PROTOBUF and f"{column}message" in named:
            raise OptionError(f"{FORMAT}: option {column}Message is for {column}Format=protobuf: leave it out")
    useless = [name for name in ("autoRegister", *REGISTRY_SETTINGS) if name.lower() in named]
    if not options.encoded and useless:
        raise OptionError(f"{FORMAT}: option {useless[0]} is for typed columns: set valueFormat or keyFormat too")


def _check_guarantee(options: KafkaSinkOptions) -> None:
    if options.guarantee is Guarantee.EXACTLY_ONCE:
        if options.offset_store.startswith(DELTA):
            raise OptionError(
                f"{FORMAT}: option offsetStore={options.offset_store!r} cannot be combined with "
                "deliveryGuarantee=exactly-once: offsets and rows become visible in one transaction of Kafka's, and "
                "only the offsets of a consumer group can be part of it. Use offsetStore=group:<id>, or leave it out "
                "for group:<appId>"
            )
    elif options.atomic_visibility:
        raise OptionError(
            f"{FORMAT}: option atomicVisibility=true needs deliveryGuarantee=exactly-once: with "
            f"{options.guarantee.value} rows are visible as soon as they are written"
        )


def _check_storage(given: Mapping[str, str], options: KafkaSinkOptions) -> None:
    """Reject options for an object store where nothing can be in one: they would be ignored silently."""
    named = sorted(key for key in given if key.lower().startswith(STORAGE_PREFIX))
    dead_letters = options.dead_letters
    has_table = options.offset_store.startswith(DELTA) or (dead_letters is not None and dead_letters.table is not None)
    if named and not has_table and not Location.parse(options.checkpoint).in_object_store:
        raise OptionError(
            f"{FORMAT}: option {named[0]} is for a checkpointLocation in an object store, offsetStore=delta:<path> or "
            f"deadLetters=table:<path>, and offsetStore is {options.offset_store!r}, deadLetters "
            f"{str(dead_letters) if dead_letters else 'not set'}: the sink uses no store for anything else. Leave it "
            "out, or set it on the source"
        )


def _check_topics(options: KafkaSinkOptions) -> None:
    """Rows, dead letters and decisions have different readers: none may share a place with another."""
    dead_letters, spec = options.dead_letters, options.offset_store
    table = Location.parse(spec.removeprefix(DELTA)) if spec.startswith(DELTA) else None
    if table is not None and dead_letters is not None and dead_letters.table == table:
        raise OptionError(
            f"{FORMAT}: options offsetStore and deadLetters both name the table {table}, which keeps the offsets of "
            "the dead letters in its own commits; those of the rows need another store"
        )
    used = {"topic": options.topic, "deadLetters": dead_letters and dead_letters.topic}
    if used["topic"] is not None and used["topic"] == used["deadLetters"]:
        raise OptionError(
            f"{FORMAT}: options topic and deadLetters both name the topic {used['topic']!r}: rejected rows would be "
            "read as results; use a separate topic for them"
        )
    for name, topic in used.items():
        if topic is not None and topic == options.decision_topic:
            raise OptionError(
                f"{FORMAT}: options {name} and decisionTopic both name the topic {topic!r}, which is compacted and "
                "keeps only decisions; name another one"
            )

"""The options of `delta_once`, declared once."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from sparkonce.connectors.sinks.dead_letters import DOC, DeadLetterPlace, dead_letters_group
from sparkonce.exactly_once.guarantee import Guarantee
from sparkonce.kafka.client.producer_settings import ProducerSettings, read_producer
from sparkonce.kafka.client.settings import ClientSettings, read_settings
from sparkonce.offset_store import DELTA, GROUP, check_spec
from sparkonce.offset_store.locations import Location
from sparkonce.offset_store.txn_ids import BEGINS_LATE, COVERED_TWICE
from sparkonce.options import (
    KAFKA_PREFIX,
    SOURCE_PREFIX,
    SQL_DOC,
    STORAGE_PREFIX,
    OptionError,
    SettingTable,
    storage_options,
)
from sparkonce.settings import REQUIRED, Scope, boolean, camel_case, long, settings_of, text

FORMAT = "delta_once"
TABLE = "table"
PATH, TABLE_NAME, PARTITION_BY, CREATE_TABLE = "path", "table", "partitionBy", "createTable"
CHECKED_RULES, NOT_BESIDE = "checkedRules", "notBeside"
WRITE_STREAM = 'sparkonce.write_stream(rows) in place of rows.writeStream.format("delta_once")'

_TABLE_GROUP, _ONCE, _FILES = "The table", "Exactly once", "Files"


def _named(text: str) -> str:
    if not text.strip():
        raise ValueError("it is empty; choose a name for this pipeline that stays the same")
    return text


def _key(text: str) -> str:
    if not text.strip():
        raise ValueError("it is empty; choose a name for this one write, such as the date that it is for")
    return text


def _columns(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if len({name.lower() for name in names}) != len(names):
        raise ValueError("a column is named twice")
    return names


def _directory(text: str) -> str:
    if not text.strip():
        raise ValueError("it is empty; name the query's checkpoint directory")
    return text


def _store(text: str) -> str | None:
    return None if text == TABLE else check_spec(text)


def _expression(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise ValueError(f"it is no regular expression of Python: {error}") from None


def _rules(text: str) -> frozenset[str]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise ValueError("expected a JSON list of texts; leave it out, and write with sparkonce.write_stream(rows)")
    return frozenset(found)


_OF_BATCHES = "is for batches of delta-spark (df.write.format('delta')); leave it out"
_ELSEWHERE = {
    "txnAppId": "is of Delta's own sink; here appId names the pipeline, and offsets take the place of txnVersion",
    "txnVersion": "is of Delta's own sink; here the offsets in the table's commits take its place: leave it out",
    "overwriteSchema": "would drop columns under a running query; for new columns set mergeSchema=true",
    "maxRecordsPerFile": "is of Delta's own sink; set targetFileBytes",
    "optimizeWrite": "is of Delta's own sink; set targetFileBytes, and merge small files by sparkonce compact",
    "autoCompact": "is of Delta's own sink; merge small files by sparkonce compact, beside the query",
    "userMetadata": "is of Delta's own sink; here the commits' metadata records which offsets they hold",
    "replaceWhere": _OF_BATCHES,
    "partitionOverwriteMode": _OF_BATCHES,
    "spark.kafka.*": "is of Spark's configuration; leave it out",
}
"""Options of Delta's own sink, and what to use instead; this sink's own options take precedence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOptions:
    """The options of every write: which table, and how its files are written."""

    table: Location = text(
        REQUIRED,
        "where the table is; start(path) and save(path) set it too. With {topic} in it, a stream with "
        "handOver=ranges has a table for each topic; so it has with a JSON object of the path for each topic. For the "
        f"name of a table, use {WRITE_STREAM}",
        name=PATH,
        parse=Location.parse,
        value="path or URI",
        group=_TABLE_GROUP,
    )
    partition_by: tuple[str, ...] = text(
        (),
        "the table's partition columns, when it is created; for an existing table, leave it out or name the "
        "same. (rows.writeStream.partitionBy does not reach a Python sink, sparkonce.write_stream(rows).partitionBy "
        "sets this option.)",
        parse=_columns,
        value="columnA,columnB",
        default_text="none",
        group=_TABLE_GROUP,
    )
    merge_schema: bool = boolean(
        False,
        "true: columns, and fields of structs, that the query has and the table lacks are added to the table, in a "
        "commit of their own before the rows; false: they stop the query",
        group=_TABLE_GROUP,
    )
    create_table: bool = boolean(
        True,
        "true: a missing table is created; false: it stops the write. A table with a name is created in its catalog "
        "before the query starts, and never by the sink",
        group=_TABLE_GROUP,
    )
    target_file_bytes: int = long(
        128 * 1024 * 1024,
        "a data file that has grown past this many bytes is closed, and a new one started",
        least=1,
        group=_FILES,
    )
    row_group_bytes: int | None = long(
        None,
        "a row group of a data file ends when its rows are this many bytes in memory: larger ones compress better, "
        "smaller ones let readers skip more, and need less memory. Capped at targetFileBytes",
        least=1,
        default_text="33554432",
        group=_FILES,
    )
    row_group_rows: int | None = long(
        None,
        "a row group also ends when it has this many rows",
        least=1,
        default_text="no limit",
        group=_FILES,
    )
    compression: str = text("snappy", "of the Parquet files", choices=("snappy", "zstd"), group=_FILES)
    app_id: str = ""
    """Of a stream: a batch has none."""
    checked_rules: frozenset[str] = frozenset()
    """Of a stream: what Spark has checked of its rows."""
    not_beside: re.Pattern[str] | None = None
    """Of a stream: the applications beside which it does not begin."""
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    """May hold keys to a store: never shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOptions(TableOptions):
    """The options of one ``df.write``, read and checked."""

    idempotency_key: str | None = text(
        None,
        "a name for this one write, new for each: the table remembers it, and a write with a key that it has writes "
        "nothing. So a job can be repeated, whatever became of its last attempt. Only the number of rows is compared: "
        "another one stops the write",
        parse=_key,
        value="name",
        default_text="none: each write adds its rows",
        scope=Scope.BATCH,
        group=_ONCE,
    )

    @classmethod
    def read(cls, given: Mapping[str, str]) -> BatchOptions:
        """Check Spark's options. Raises OptionError if one is unknown, for streams only, missing or unreadable."""
        return cls(storage_options=storage_options(given), **BATCH_OPTIONS.read(given))


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions(TableOptions):
    """The options of one streaming query, read and checked."""

    app_id: str = text(
        REQUIRED,
        "a name for this pipeline, stable over restarts: the table keeps the pipeline's offsets under it. Two "
        "pipelines into one table need two names",
        parse=_named,
        value="name",
        scope=Scope.STREAM,
        group=_ONCE,
    )
    checkpoint: str = text(
        REQUIRED,
        "Spark's checkpoint directory, as an option of the query: set by Spark configuration alone it does not "
        "reach the sink, which reads each batch's offsets from it",
        name="checkpointLocation",
        parse=_directory,
        value="path or URI",
        scope=Scope.STREAM,
        group=_ONCE,
    )
    guarantee: Guarantee = text(
        Guarantee.EXACTLY_ONCE,
        "what a crash may do to the rows: at-most-once, at-least-once or exactly-once",
        name="deliveryGuarantee",
        choices=tuple(guarantee.value for guarantee in Guarantee),
        parse=Guarantee,
        scope=Scope.STREAM,
        group=_ONCE,
    )
    offset_store: str | None = text(
        None,
        "where the offsets live: table, in the commits of the rows; delta:<path>, a Delta table of their own; or "
        "group:<id>, a Kafka consumer group (with kafka.bootstrap.servers). With exactly-once they are always in "
        "the commits of the rows, and the store that is named gets a copy after each batch",
        parse=_store,
        default_text=TABLE,
        value="table|delta:<path>|group:<id>",
        scope=Scope.STREAM,
        group=_ONCE,
    )
    """A store separate from the table, or None."""
    checked_rules: frozenset[str] = text(
        frozenset(),
        "the constraints and generated columns of the table that the query has checked, since the sink cannot: set by "
        "sparkonce.write_stream(rows), which adds them to the plan. Any other such rule stops the query",
        parse=_rules,
        default_text="none",
        value="JSON list",
        scope=Scope.STREAM,
        group=_TABLE_GROUP,
    )
    covered_twice: bool = boolean(
        False,
        "true: the query writes rows of records that the table has under another appId, on purpose: several queries "
        "divide a topic by WHERE, or rows are to be there twice. false: the first batch of an appId over such records "
        "stops the query. It is recorded in the table, for audits",
        scope=Scope.STREAM,
        group=_ONCE,
    )
    begins_late: bool = boolean(
        False,
        "true: the table holds nothing of what the query's checkpoint read before, on purpose. false: the first batch "
        "of an appId stops the query then, since the checkpoint is that of another table. It is recorded in the table, "
        "for audits",
        scope=Scope.STREAM,
        group=_ONCE,
    )
    not_beside: re.Pattern[str] | None = text(
        None,
        "a regular expression: the first batch of an appId stops the query where the table has offsets of another "
        "appId that matches all of it. sparkonce ingest sets it, so that no table gets the rows of a second topic",
        parse=_expression,
        value="expression",
        default_text="none",
        scope=Scope.STREAM,
        group=_ONCE,
    )
    sql: str | None = text(
        None,
        SQL_DOC,
        value="SELECT … FROM records",
        scope=Scope.STREAM,
        group=_TABLE_GROUP,
    )
    dead_letters: DeadLetterPlace | None = text(
        None,
        DOC,
        parse=DeadLetterPlace.parse,
        value="topic:<name>|table:<path>",
        scope=Scope.STREAM,
        group=_TABLE_GROUP,
    )
    table_name: str | None = text(
        None,
        "the name of the table in a catalog of Spark, in place of path: it is looked up, or created, when the query "
        f"starts. Only with {WRITE_STREAM}; toTable(name) sets it too",
        name=TABLE_NAME,
        value="[catalog.][schema.]table",
        default_text="none",
        scope=Scope.STREAM,
        group=_TABLE_GROUP,
    )
    """None for the sink itself, which cannot ask a catalog."""
    kafka: ClientSettings | None = field(default=None, repr=False)
    """The cluster of the consumer group with the offsets, and of the topic of dead letters."""
    producer: ProducerSettings | None = None
    """How dead letters are sent to a topic."""

    @property
    def meant(self) -> frozenset[str]:
        """The intended exceptions, under the names in audits."""
        said = {COVERED_TWICE: self.covered_twice, BEGINS_LATE: self.begins_late}
        return frozenset(what for what, is_meant in said.items() if is_meant)

    @classmethod
    def read(cls, given: Mapping[str, str]) -> SinkOptions:
        """Check Spark's options. Raises OptionError if one is unknown, missing, unreadable, or the name of a table."""
        name = _given(given, TABLE_NAME)
        if name is not None:
            raise OptionError(
                f"{FORMAT}: option {TABLE_NAME}={name}: a sink in Python cannot ask Spark's catalog: use {WRITE_STREAM}"
            )
        values = OPTIONS.read(given)
        if values.pop("idempotency_key") is not None:
            raise OptionError(
                f"{FORMAT}: option idempotencyKey is for batches (df.write): in a stream the offsets in the commits "
                "tell which batches the table has; leave it out"
            )
        options = cls(**values)
        store = _apart(options.offset_store, options.table)
        if options.dead_letters is not None:
            _check_dead_letters(options.dead_letters, options.table, store, options.app_id)
        kafka, producer = _kafka_settings(options, given)
        of_store = storage_options(given)
        if of_store:
            _check_one_store(_places(options, store))
        return replace(options, offset_store=store, kafka=kafka, producer=producer, storage_options=of_store)

    @classmethod
    def read_with_name(cls, given: Mapping[str, str]) -> SinkOptions:
        """Check options whose table may be a name; `table` is no real place then. Raises OptionError as `read`."""
        name, path = _given(given, TABLE_NAME), _given(given, PATH)
        if name is None:
            return cls.read(given)
        if path is not None:
            raise OptionError(
                f"{FORMAT}: the options {PATH}={path} and {TABLE_NAME}={name} (or toTable) exclude each other: the "
                f"catalog knows where {name} is. For a new table at that path: CREATE TABLE {name} (…) USING delta "
                f"LOCATION '{path}', before the query"
            )
        others = {key: value for key, value in given.items() if key.lower() != TABLE_NAME}
        return replace(cls.read({**others, PATH: _NOWHERE}), table_name=name)


_NOWHERE = "/sparkonce: where the table is, is not known yet"


def _given(given: Mapping[str, str], name: str) -> str | None:
    return next((value for key, value in given.items() if key.lower() == name.lower()), None)


_BATCH, _STREAM = settings_of(BatchOptions, camel_case), settings_of(SinkOptions, camel_case)
_GROUPS = (_TABLE_GROUP, _ONCE, _FILES)

OPTIONS = SettingTable(
    FORMAT,
    dict(sorted({**_STREAM, **_BATCH}.items(), key=lambda each: _GROUPS.index(each[1].group))),
    "delta-sink",
    passed_through=(f"{STORAGE_PREFIX}*", f"{KAFKA_PREFIX}*", f"{SOURCE_PREFIX}*", "queryName"),
    elsewhere=_ELSEWHERE,
)
"""All options; `SinkOptions.read` rejects those of batches."""

BATCH_OPTIONS = SettingTable(
    FORMAT,
    _BATCH,
    "delta-sink",
    passed_through=(f"{STORAGE_PREFIX}*",),
    elsewhere={
        **_ELSEWHERE,
        **dict.fromkeys(
            (*(name for name in _STREAM if name not in _BATCH), "queryName", f"{KAFKA_PREFIX}*"),
            "is for writeStream: a batch (df.write) has no offsets to keep; leave it out",
        ),
        TABLE_NAME: "is for writeStream: write a batch to the path that sparkonce.table_path(spark, name) returns",
        "txnAppId": "is of Delta's own sink; here idempotencyKey names a write that is made once",
        "txnVersion": "is of Delta's own sink; here idempotencyKey names a write that is made once: leave it out",
        "userMetadata": "is of Delta's own sink; leave it out",
        "overwriteSchema": "is of Delta's own sink; for new columns set mergeSchema=true",
        "autoCompact": "is of Delta's own sink; merge small files by sparkonce compact",
    },
)
"""The options of ``df.write``."""


def _apart(spec: str | None, table: Location) -> str | None:
    """Return the store, unless it is the table itself."""
    itself = spec is not None and spec.startswith(DELTA) and Location.parse(spec.removeprefix(DELTA)) == table
    return None if itself else spec


def _places(options: SinkOptions, store: str | None) -> dict[str, Location]:
    """Return the folders that a query writes, by the option that names each."""
    dead_letters = options.dead_letters.table if options.dead_letters else None
    named = {
        PATH: options.table,
        "checkpointLocation": Location.parse(options.checkpoint) if options.checkpoint else None,
        "offsetStore": Location.parse(store.removeprefix(DELTA)) if store and store.startswith(DELTA) else None,
        "deadLetters": dead_letters,
    }
    return {name: place for name, place in named.items() if place is not None}


def _check_one_store(places: Mapping[str, Location]) -> None:
    """Reject places in object stores of two kinds, which one set of options cannot reach. Raises OptionError."""
    of_kind: dict[str, str] = {}
    for name, place in places.items():
        if place.in_object_store:
            of_kind.setdefault(place.text.partition(":")[0], f"{name}={place}")
    if len(of_kind) > 1:
        raise OptionError(
            f"{FORMAT}: {' and '.join(of_kind.values())} are in stores of different kinds, and "
            f"the options {STORAGE_PREFIX}* reach one: put all into one store, or set the credentials of each in the "
            f"environment and no {STORAGE_PREFIX}*"
        )


def _check_dead_letters(place: DeadLetterPlace, table: Location, offset_store: str | None, app_id: str) -> None:
    """Reject a place of another use: it cannot hold two chains of one application. Raises OptionError."""
    if place.table == table:
        raise OptionError(
            f"{FORMAT}: deadLetters={place} is the table of the rows: dead letters need a table of their own"
        )
    own = f"{GROUP}{dead_letters_group(app_id)}" if place.table is None else f"{DELTA}{place.table}"
    store = offset_store or ""
    if store.startswith(DELTA):
        store = f"{DELTA}{Location.parse(store.removeprefix(DELTA))}"
    if store == own:
        raise OptionError(
            f"{FORMAT}: offsetStore={offset_store} is where the offsets of the dead letters are kept, by "
            f"deadLetters={place}; those of the rows need another store"
        )


def _kafka_settings(
    options: SinkOptions, given: Mapping[str, str]
) -> tuple[ClientSettings | None, ProducerSettings | None]:
    """Read the options ``kafka.*``, if they are used."""
    spec, dead_letters = options.offset_store or TABLE, options.dead_letters
    try:
        if dead_letters is not None and dead_letters.topic is not None:
            return read_producer(given, options.guarantee.keeping)
        if spec.startswith(GROUP):
            return read_settings(given), None
    except OptionError as error:
        use = f"offsetStore={spec}" if spec.startswith(GROUP) else f"deadLetters={dead_letters}"
        raise OptionError(f"{FORMAT}: {use}: {str(error).removeprefix('kafka_once: ')}") from error
    named = sorted(key for key in given if key.lower().startswith(KAFKA_PREFIX))
    if named:
        raise OptionError(
            f"{FORMAT}: option {named[0]} is for offsetStore=group:<id> or deadLetters=topic:<name>, and offsetStore "
            f"is {spec!r}, deadLetters {str(dead_letters) if dead_letters else 'not set'}: the sink uses Kafka for "
            "nothing else. Leave it out, or set it on the source"
        )
    return None, None

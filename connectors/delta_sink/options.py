"""The options of `delta_once`, declared once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sparkonce.connectors.kafka_client.settings import PREFIX, ClientSettings, read_settings
from sparkonce.connectors.kafka_sink.settings import ProducerSettings, read_producer
from sparkonce.connectors.settings.options import (
    STORAGE_PREFIX,
    Option,
    OptionError,
    OptionSet,
    boolean,
    one_of,
    positive,
    storage_options,
)
from sparkonce.connectors.sinks.dead_letter_place import DOC, DeadLetterPlace, letters_group
from sparkonce.exactly_once.guarantee import Guarantee
from sparkonce.offset_store import DELTA, GROUP, check_spec
from sparkonce.offset_store.locations import Location

FORMAT = "delta_once"
TABLE = "table"
DEFAULT_TARGET_FILE_BYTES = 128 * 1024 * 1024
DEFAULT_COMPRESSION = "snappy"

_TABLE_GROUP, _ONCE, _FILES = "The table", "Exactly once", "Files"
_GUARANTEES = tuple(guarantee.value for guarantee in Guarantee)


def _columns(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if len({name.lower() for name in names}) != len(names):
        raise ValueError("a column is named twice")
    return names


def _directory(text: str) -> str:
    if not text.strip():
        raise ValueError("it is empty; name the query's checkpoint directory")
    return text


def _store(text: str) -> str:
    return text if text == TABLE else check_spec(text)


_OF_BATCHES = "is for batches of delta-spark (df.write.format('delta')); leave it out"
_ELSEWHERE = {
    "txnAppId": "is of Delta's own sink; here appId names the pipeline, and offsets take the place of txnVersion",
    "txnVersion": "is of Delta's own sink; here the offsets in the table's commits take its place: leave it out",
    "overwriteSchema": "would drop columns under a running query; for new columns set mergeSchema=true",
    "maxRecordsPerFile": "is of Delta's own sink; set targetFileBytes",
    "optimizeWrite": "is of Delta's own sink; set targetFileBytes, and merge small files by sparkonce compact",
    "autoCompact": "is of Delta's own sink; merge small files by sparkonce compact, beside the query",
    "userMetadata": "is of Delta's own sink; here the commits' metadata says which offsets they hold",
    "replaceWhere": _OF_BATCHES,
    "partitionOverwriteMode": _OF_BATCHES,
    "spark.kafka.*": "is of Spark's configuration; leave it out",
}
"""Options of Delta's own sink, and what to do with them; those that are this sink's own go before."""

OPTIONS = OptionSet(
    FORMAT,
    (
        Option(
            "path",
            "where the table is; start(path) sets it too",
            required=True,
            value="path or URI",
            group=_TABLE_GROUP,
        ),
        Option(
            "appId",
            "a name for this pipeline, stable over restarts: the table keeps the pipeline's offsets under it. Two "
            "pipelines into one table need two names",
            required=True,
            value="name",
            group=_ONCE,
        ),
        Option(
            "checkpointLocation",
            "Spark's checkpoint directory, as an option of the query: set by Spark configuration alone it does not "
            "reach the sink, which reads each batch's offsets from it",
            _directory,
            required=True,
            value="path or URI",
            group=_ONCE,
        ),
        Option(
            "deliveryGuarantee",
            "what a crash may do to the rows: at-most-once, at-least-once or exactly-once",
            one_of(*_GUARANTEES),
            Guarantee.EXACTLY_ONCE.value,
            group=_ONCE,
        ),
        Option(
            "offsetStore",
            "where the offsets live: table, in the commits of the rows; delta:<path>, a Delta table of their own; or "
            "group:<id>, a Kafka consumer group (with kafka.bootstrap.servers). With exactly-once they are always in "
            "the commits of the rows, and the store that is named gets a copy after each batch",
            _store,
            TABLE,
            value="table|delta:<path>|group:<id>",
            group=_ONCE,
        ),
        Option("deadLetters", DOC, DeadLetterPlace.parse, value="topic:<name>|table:<path>", group=_TABLE_GROUP),
        Option(
            "partitionBy",
            "the table's partition columns, when it is created; for a table that is there, leave it out or name the "
            "same. (writeStream.partitionBy does not reach a Python sink.)",
            _columns,
            (),
            value="columnA,columnB",
            default_text="none",
            group=_TABLE_GROUP,
        ),
        Option(
            "mergeSchema",
            "true: columns, and fields of structs, that the query has and the table lacks are added to the table, in a "
            "commit of their own before the rows; false: they stop the query",
            boolean,
            False,
            group=_TABLE_GROUP,
        ),
        Option(
            "targetFileBytes",
            "a data file that has grown past this many bytes is closed and another begun",
            positive,
            DEFAULT_TARGET_FILE_BYTES,
            group=_FILES,
        ),
        Option(
            "rowGroupBytes",
            "a row group of a data file ends when its rows are this many bytes in memory: larger ones compress better, "
            "smaller ones let readers skip more, and need less memory. Above targetFileBytes it counts as that",
            positive,
            default_text="33554432",
            group=_FILES,
        ),
        Option(
            "rowGroupRows",
            "a row group ends, too, when it has this many rows",
            positive,
            default_text="no limit",
            group=_FILES,
        ),
        Option(
            "compression",
            "of the Parquet files",
            one_of("snappy", "zstd"),
            DEFAULT_COMPRESSION,
            group=_FILES,
        ),
    ),
    passed_through=(STORAGE_PREFIX, PREFIX),
    ignored=("queryname",),
    reference="delta-sink",
    elsewhere=_ELSEWHERE,
)


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The options of one query, read and checked."""

    table: Location
    app_id: str
    checkpoint: str
    guarantee: Guarantee
    partition_by: tuple[str, ...] = ()
    target_file_bytes: int = DEFAULT_TARGET_FILE_BYTES
    compression: str = DEFAULT_COMPRESSION
    merge_schema: bool = False
    row_group_bytes: int | None = None
    row_group_rows: int | None = None
    offset_store: str | None = None
    """A store apart from the table, or None."""
    kafka: ClientSettings | None = field(default=None, repr=False)
    """The cluster of the consumer group that offsets go to, and of the topic of dead letters."""
    dead_letters: DeadLetterPlace | None = None
    producer: ProducerSettings | None = None
    """How dead letters are sent to a topic."""
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    """May hold keys to a store: never shown."""

    @classmethod
    def read(cls, given: Mapping[str, str]) -> SinkOptions:
        """Check what Spark hands over.

        Raises:
            OptionError: for an option that is unknown, missing or not readable.
        """
        values = OPTIONS.read(given)
        if not values["appId"].strip():
            raise OptionError(f"{FORMAT}: option appId is empty; give this pipeline a name that stays the same")
        try:
            table = Location.parse(values["path"])
        except ValueError as error:
            raise OptionError(f"{FORMAT}: option path={values['path']!r} cannot be read: {error}") from error
        guarantee = Guarantee(values["deliveryGuarantee"])
        offset_store, dead_letters = _apart(values["offsetStore"], table), values["deadLetters"]
        if dead_letters is not None:
            _check_dead_letters(dead_letters, table, offset_store, values["appId"])
        kafka, producer = _kafka_settings(values["offsetStore"], dead_letters, guarantee, given)
        return cls(
            table=table,
            app_id=values["appId"],
            checkpoint=values["checkpointLocation"],
            guarantee=guarantee,
            partition_by=values["partitionBy"],
            target_file_bytes=values["targetFileBytes"],
            compression=values["compression"],
            merge_schema=values["mergeSchema"],
            row_group_bytes=values["rowGroupBytes"],
            row_group_rows=values["rowGroupRows"],
            offset_store=offset_store,
            kafka=kafka,
            dead_letters=dead_letters,
            producer=producer,
            storage_options=storage_options(given),
        )


def _apart(spec: str, table: Location) -> str | None:
    """Return the store, unless it is the table itself."""
    itself = spec.startswith(DELTA) and Location.parse(spec.removeprefix(DELTA)) == table
    return None if spec == TABLE or itself else spec


def _check_dead_letters(place: DeadLetterPlace, table: Location, offset_store: str | None, app_id: str) -> None:
    """Refuse a place that has another use: two chains of offsets of one application cannot live in one.

    Raises:
        OptionError: if it has.
    """
    if place.table == table:
        raise OptionError(
            f"{FORMAT}: deadLetters={place} is the table of the rows: give dead letters a table of their own"
        )
    own = f"{GROUP}{letters_group(app_id)}" if place.table is None else f"{DELTA}{place.table}"
    store = offset_store or ""
    if store.startswith(DELTA):
        store = f"{DELTA}{Location.parse(store.removeprefix(DELTA))}"
    if store == own:
        raise OptionError(
            f"{FORMAT}: offsetStore={offset_store} is where the offsets of the dead letters are kept, by "
            f"deadLetters={place}; those of the rows need another store"
        )


def _kafka_settings(
    spec: str, dead_letters: DeadLetterPlace | None, guarantee: Guarantee, given: Mapping[str, str]
) -> tuple[ClientSettings | None, ProducerSettings | None]:
    """Read the options ``kafka.*``, if there is a use for them."""
    try:
        if dead_letters is not None and dead_letters.topic is not None:
            return read_producer(given, guarantee)
        if spec.startswith(GROUP):
            return read_settings(given), None
    except OptionError as error:
        use = f"offsetStore={spec}" if spec.startswith(GROUP) else f"deadLetters={dead_letters}"
        raise OptionError(f"{FORMAT}: {use}: {str(error).removeprefix('kafka_once: ')}") from error
    named = sorted(key for key in given if key.lower().startswith(PREFIX))
    if named:
        raise OptionError(
            f"{FORMAT}: option {named[0]} is for offsetStore=group:<id> or deadLetters=topic:<name>, and offsetStore "
            f"is {spec!r}, deadLetters {str(dead_letters) if dead_letters else 'not set'}: the sink talks to Kafka for "
            "nothing else. Leave it out, or set it on the source"
        )
    return None, None

"""The options of `delta_once`, declared once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from connectors.kafka_once.settings import PREFIX, ClientSettings, read_settings
from connectors.options import STORAGE_PREFIX, Option, OptionError, OptionSet, one_of, positive, storage_options
from exactly_once.guarantee import Guarantee
from offset_store import DELTA, GROUP, check_spec
from offset_store.locations import Location

FORMAT = "delta_once"
TABLE = "table"
DEFAULT_TARGET_FILE_BYTES = 128 * 1024 * 1024

_GUARANTEES = tuple(guarantee.value for guarantee in Guarantee)


def _columns(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if len(set(names)) != len(names):
        raise ValueError("a column is named twice")
    return names


def _store(text: str) -> str:
    return text if text == TABLE else check_spec(text)


OPTIONS = OptionSet(
    FORMAT,
    (
        Option("path", "where the table is; start(path) sets it too", required=True),
        Option(
            "appId",
            "a name for this pipeline, stable over restarts: the table keeps the pipeline's offsets under it",
            required=True,
        ),
        Option(
            "checkpointLocation",
            "Spark's checkpoint directory, as an option of the query: set by Spark configuration alone it does not "
            "reach the sink, which reads each batch's offsets from it",
            required=True,
        ),
        Option(
            "deliveryGuarantee",
            "what a crash may do to the rows: at-most-once, at-least-once or exactly-once",
            one_of(*_GUARANTEES),
            Guarantee.EXACTLY_ONCE.value,
        ),
        Option(
            "offsetStore",
            "where the offsets live: table, in the commits of the rows; delta:<path>, a Delta table of their own; or "
            "group:<id>, a Kafka consumer group (with kafka.bootstrap.servers). With exactly-once they are always in "
            "the commits of the rows, and the store that is named gets a copy after each batch",
            _store,
            TABLE,
        ),
        Option("partitionBy", "the table's partition columns, separated by commas, when it is created", _columns, ()),
        Option(
            "targetFileBytes",
            "a data file that has grown past this many bytes is closed and another begun",
            positive,
            DEFAULT_TARGET_FILE_BYTES,
        ),
        Option("compression", "of the Parquet files: snappy or zstd", one_of("snappy", "zstd"), "snappy"),
    ),
    passed_through=(STORAGE_PREFIX, PREFIX),
    ignored=("queryname",),
)


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The options of one query, read and checked."""

    table: Location
    app_id: str
    checkpoint: str
    guarantee: Guarantee
    partition_by: tuple[str, ...]
    target_file_bytes: int
    compression: str
    offset_store: str | None = None
    """A store apart from the table, or None."""
    kafka: ClientSettings | None = field(default=None, repr=False)
    """The cluster of the consumer group that offsets go to."""
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
        return cls(
            table=table,
            app_id=values["appId"],
            checkpoint=values["checkpointLocation"],
            guarantee=Guarantee(values["deliveryGuarantee"]),
            partition_by=values["partitionBy"],
            target_file_bytes=values["targetFileBytes"],
            compression=values["compression"],
            offset_store=_apart(values["offsetStore"], table),
            kafka=_kafka_settings(values["offsetStore"], given),
            storage_options=storage_options(given),
        )


def _apart(spec: str, table: Location) -> str | None:
    """Give the store, unless it is the table itself."""
    itself = spec.startswith(DELTA) and Location.parse(spec.removeprefix(DELTA)) == table
    return None if spec == TABLE or itself else spec


def _kafka_settings(spec: str, given: Mapping[str, str]) -> ClientSettings | None:
    named = sorted(key for key in given if key.lower().startswith(PREFIX))
    if not spec.startswith(GROUP):
        if named:
            raise OptionError(
                f"{FORMAT}: option {named[0]} is for offsetStore=group:<id>, and offsetStore is {spec!r}: the sink "
                f"talks to Kafka only to keep offsets in a consumer group. Leave it out, or set it on the source"
            )
        return None
    try:
        return read_settings(given)
    except OptionError as error:
        raise OptionError(f"{FORMAT}: offsetStore={spec}: {str(error).removeprefix('kafka_once: ')}") from error

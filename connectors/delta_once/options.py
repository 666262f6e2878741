"""The options of `delta_once`, declared once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from connectors.options import Option, OptionError, OptionSet, one_of, positive
from exactly_once.guarantee import Guarantee
from offset_store.locations import Location

FORMAT = "delta_once"
STORAGE_PREFIX = "storage."
DEFAULT_TARGET_FILE_BYTES = 128 * 1024 * 1024

_GUARANTEES = tuple(guarantee.value for guarantee in Guarantee)


def _columns(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if len(set(names)) != len(names):
        raise ValueError("a column is named twice")
    return names


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
        Option("offsetStore", "where the offsets live: table, in the commits of the rows", one_of("table"), "table"),
        Option("partitionBy", "the table's partition columns, separated by commas, when it is created", _columns, ()),
        Option(
            "targetFileBytes",
            "a data file that has grown past this many bytes is closed and another begun",
            positive,
            DEFAULT_TARGET_FILE_BYTES,
        ),
        Option("compression", "of the Parquet files: snappy or zstd", one_of("snappy", "zstd"), "snappy"),
    ),
    passed_through=(STORAGE_PREFIX,),
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
            storage_options={
                key[len(STORAGE_PREFIX) :]: value
                for key, value in given.items()
                if key.lower().startswith(STORAGE_PREFIX)
            },
        )

"""Records that cannot be used: marked in the query, with the reason, and kept by the sink beside the result.

`mark` adds the column `COLUMN` to a DataFrame of Kafka records. It is null for a record that is fine, and else holds
the record's bytes, its coordinates (topic, partition, offset, timestamp) and the reason. A sink with the option
``deadLetters`` writes such rows there, and the others, without this column, to the result:

    flights = mark(records, json="flight_id BIGINT, delay INT", rules={"delay is negative": col("delay") < 0})
    query = flights.writeStream.format("delta_once").option("deadLetters", "table:/lake/dead_flights")…

The decision about a record must depend on the record alone: a batch that is replayed after a crash must be split the
same way. So do not use rand() or current_timestamp() in rules.

`DeadLetterPlace` is the value of the option, the same in both sinks.
"""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql import types as t

from sparkonce.connectors.values.letters import COLUMN, LETTER, REASON
from sparkonce.offset_store.locations import Location

_RECORD, _PARSED, _UNPARSED = "_dead_letter_record", "_dead_letter_parsed", "_dead_letter_unparsed"
_REASON_FOUND = "_dead_letter_reason"
"""Temporary columns, and the field for what from_json could not read."""

_Reasons = Sequence[tuple[str, Column]]
"""The reason and the condition of a rejection; the first one applies."""

TOPIC, TABLE = "topic:", "table:"
"""Prefixes of the option ``deadLetters``."""
DOC = (
    "the destination of rows whose column `_dead_letter` is not null (see sparkonce.mark): topic:<name>, or "
    "table:<path of a Delta table>"
)

_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def mark(
    records: DataFrame,
    *,
    json: str | t.StructType | None = None,
    parsed: Column | None = None,
    rules: Mapping[str, Column] | None = None,
    keep: Sequence[str] = (),
) -> DataFrame:
    """Mark the records that do not parse, and those that a rule rejects.

    Args:
        records: records as ``kafka_once`` reads them: with key, value, topic, partition, offset and timestamp.
        json: the fields that each value has, as JSON. A value that is no JSON object, or one with a field of another
            type, does not parse; a field that is missing is null.
        parsed: instead of ``json``, your own parsed column. A record does not parse if this is null or, for a struct,
            if all its fields are null. from_json here would accept values that parse only in part.
        rules: conditions that reject a record, by their reason. A rule that is true rejects a record; one that is null
            does not. The first one applies. Rules may use all columns of the result. One that raises an error stops the
            query: use try_cast, try_divide and the like.
        keep: columns of ``records`` to keep beside what is parsed.

    Returns:
        The fields of what was parsed, the columns in ``keep``, and `COLUMN`. If nothing is to be parsed: all columns
        of ``records``, and `COLUMN`.

    Raises:
        ValueError: for missing columns or duplicate names.
    """
    _check_records(records, keep)
    if json is not None and parsed is not None:
        raise ValueError("mark: pass json or parsed, not both")
    reasons: _Reasons = ()
    record = f.struct(*(f.col(field.name).cast(field.dataType).alias(field.name) for field in LETTER.fields[1:]))
    if json is not None:
        rows, reasons = _with_json(records, record, _fields(json), keep)
    elif parsed is not None:
        rows, reasons = _with_parsed(records, record, parsed, keep)
    elif rules:
        rows = records.withColumn(_RECORD, record)
    else:
        raise ValueError("mark: no condition: pass json, parsed or rules")
    reason = f.lit(None).cast("string")
    for text, condition in reversed([*reasons, *(rules or {}).items()]):
        reason = f.when(condition, f.lit(text)).otherwise(reason)
    parts = (f.col(_RECORD)[field.name].alias(field.name) for field in LETTER.fields[1:])
    letter = f.struct(f.col(_REASON_FOUND).alias(REASON), *parts)
    rows = rows.withColumn(_REASON_FOUND, reason)
    rows = rows.withColumn(COLUMN, f.when(f.col(_REASON_FOUND).isNotNull(), letter))
    return rows.drop(_RECORD, _UNPARSED, _REASON_FOUND)


def _with_json(
    records: DataFrame, record: Column, fields: t.StructType, keep: Sequence[str]
) -> tuple[DataFrame, _Reasons]:
    """Parse JSON so that a value that does not parse is distinguished from one whose fields are null."""
    _check_names(fields.names, keep)
    text = f.col("value").cast("string")
    with_unparsed = t.StructType([*fields.fields, t.StructField(_UNPARSED, t.StringType())])
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _UNPARSED}
    parsed = f.when(f.is_valid_utf8(text), f.from_json(text, with_unparsed, options))
    rows = records.select(record.alias(_RECORD), parsed.alias(_PARSED), *_kept(keep))
    columns = [f.col(_PARSED)[name].alias(name) for name in fields.names]
    unparsed = f.col(_PARSED).isNull() | f.col(_PARSED)[_UNPARSED].isNotNull()
    rows = rows.select(_RECORD, unparsed.alias(_UNPARSED), *columns, *_kept(keep))
    return rows, [
        ("value is null", f.col(_RECORD)["value"].isNull()),
        (
            f"value does not parse as JSON with the fields {fields.simpleString()[len('struct<') : -1]}",
            f.col(_UNPARSED),
        ),
    ]


def _with_parsed(records: DataFrame, record: Column, parsed: Column, keep: Sequence[str]) -> tuple[DataFrame, _Reasons]:
    (field,) = records.select(parsed).schema.fields
    is_struct = isinstance(field.dataType, t.StructType)
    names = field.dataType.names if isinstance(field.dataType, t.StructType) else [field.name]
    _check_names(names, keep)
    rows = records.select(record.alias(_RECORD), parsed.alias(_PARSED), *_kept(keep))
    parts = [f.col(_PARSED)[name] if is_struct else f.col(_PARSED) for name in names]
    nothing = functools.reduce(operator.and_, (part.isNull() for part in parts))
    columns = [part.alias(name) for name, part in zip(names, parts, strict=True)]
    rows = rows.select(_RECORD, nothing.alias(_UNPARSED), *columns, *_kept(keep))
    return rows, [("record does not parse", f.col(_UNPARSED))]


def _fields(json: str | t.StructType) -> t.StructType:
    if isinstance(json, t.StructType):
        return json
    fields = t.DataType.fromDDL(json)
    if not isinstance(fields, t.StructType):
        raise ValueError(f"mark: json={json!r} has no fields; write them as in 'flight_id BIGINT, delay INT'")
    return fields


def _kept(keep: Sequence[str]) -> list[Column]:
    return [f.col(name) for name in keep]


def _check_records(records: DataFrame, keep: Sequence[str]) -> None:
    have = {name.lower() for name in records.columns}
    missing = [field.name for field in LETTER.fields[1:] if field.name not in have]
    if missing:
        raise ValueError(
            f"mark needs the column {', '.join(missing)} of the record: mark what readStream returns, before you "
            "select columns of it"
        )
    missing = [name for name in keep if name.lower() not in have]
    if missing:
        raise ValueError(f"mark: keep names {', '.join(missing)}, which the records do not have")
    if COLUMN in have:
        raise ValueError(f"mark: the records have a column {COLUMN} already: pass all rules in one call")


def _check_names(names: Sequence[str], keep: Sequence[str]) -> None:
    lower = [name.lower() for name in (*names, *keep)]
    twice = sorted({name for name in lower if lower.count(name) > 1})
    if twice:
        raise ValueError(f"mark: the result would have two columns {', '.join(twice)}: leave one out, or rename it")


@dataclass(frozen=True, slots=True)
class DeadLetterPlace:
    """A topic or a Delta table, one of the two."""

    topic: str | None = None
    table: Location | None = None

    @classmethod
    def parse(cls, text: str) -> DeadLetterPlace:
        """Read ``topic:<name>`` or ``table:<path>``. Raises ValueError if the text is anything else."""
        kind, name = text[: len(TOPIC)], text[len(TOPIC) :].strip()
        if kind == TOPIC and name:
            return cls(topic=topic_name(name))
        if kind == TABLE and name:
            return cls(table=Location.parse(name))
        raise ValueError("expected topic:<name> or table:<path of a Delta table>")

    def __str__(self) -> str:
        return f"{TABLE}{self.table}" if self.topic is None else f"{TOPIC}{self.topic}"


def dead_letters_group(app_id: str) -> str:
    """Return the consumer group with the offsets of an application's dead letters, where these go to a topic."""
    return f"{app_id}-dead-letters"


def topic_name(text: str) -> str:
    """Read a topic's name by the rules of Kafka's `Topic.validate`. Raises ValueError if it is none."""
    if text in (".", "..") or _TOPIC_NAME.fullmatch(text) is None:
        raise ValueError(
            "a topic's name has 1 to 249 letters, digits, dots, underscores and hyphens, and is not . or .."
        )
    return text

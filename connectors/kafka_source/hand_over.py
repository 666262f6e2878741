"""The rows of a source with ``handOver=ranges``: one for each range to read, instead of its records.

Spark plans such rows, sends them to tasks and logs their offsets as it does with records; the records are read where
they are written, in the task of the sink (`connectors.direct`). A row is JSON, so that nothing is executed when it is
read. It holds no option: those are in the metadata of the column, which Spark keeps with the plan, except passwords,
which must not be in a plan. A fingerprint in each row says which options it belongs to.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StringType, StructField, StructType

from sparkonce.connectors.kafka_source.ranges import FetchRange
from sparkonce.connectors.schema_registry.settings import SENSITIVE
from sparkonce.kafka.client.metadata import Leader
from sparkonce.kafka.client.settings import READER
from sparkonce.options import KAFKA_PREFIX, STORAGE_PREFIX

COLUMN = "kafka_once_range"
"""The column of the rows."""
METADATA = "sparkonce.source"
"""The key of the column's metadata."""
_LARGEST_OFFSET = 2**63 - 1
_SHOWN = 400
"""How many characters of an unknown row a message shows."""
_SCHEMA = pa.schema([pa.field(COLUMN, pa.string())])
_SECRETS = {KAFKA_PREFIX + name.lower() for name, setting in READER.settings.items() if setting.sensitive}
_SECRETS |= {name.lower() for name in SENSITIVE}
_ONLY_PLANNED_WITH = (STORAGE_PREFIX, "offsetstore", "checkpointlocation", "commitgroup")
"""Prefixes of options that no task needs."""


class HandOverError(ValueError):
    """A row or a column that is not what a source with ``handOver=ranges`` returns."""


@dataclass(frozen=True, slots=True)
class HandOver:
    """The source's options in the column's metadata."""

    options: Mapping[str, str]
    """Its options, by their names in lower case, without `secrets`."""
    secrets: tuple[str, ...]
    """The names of the options that were set and are left out here."""
    mark: str | None = None
    """The fingerprint in the rows, if it is that of other options; see `connectors.direct.source.schema_of_topic`."""

    @classmethod
    def of(cls, given: Mapping[str, str]) -> HandOver:
        """Return it for the options of a source."""
        named = {name.lower(): text for name, text in given.items()}
        needed = {name: text for name, text in named.items() if not name.startswith(_ONLY_PLANNED_WITH)}
        shown = {name: text for name, text in sorted(needed.items()) if name not in _SECRETS}
        return cls(shown, tuple(sorted(needed.keys() - shown.keys())))

    @classmethod
    def find(cls, field: StructField) -> HandOver | None:
        """Return a column's options, None if it is not such a column. Raises HandOverError if it cannot be read."""
        text = (field.metadata or {}).get(METADATA)
        if text is None:
            return None
        try:
            document = json.loads(text)
            options, secrets, mark = dict(document["options"]), tuple(document["secrets"]), document.get("mark")
        except (ValueError, KeyError, TypeError) as error:
            raise HandOverError(f"the metadata of column {field.name} cannot be read: {text!r} ({error!r})") from error
        if not all(isinstance(each, str) for each in [*options.values(), *secrets]):
            raise HandOverError(f"the metadata of column {field.name} has options that are no texts: {text!r}")
        return cls(options, secrets, mark)

    @classmethod
    def of_rows(cls, schema: StructType) -> HandOver | None:
        """Return the options of the rows' source, None if the rows are no ranges. Raises HandOverError as `find`."""
        return next((found for field in schema.fields if (found := cls.find(field)) is not None), None)

    @property
    def fingerprint(self) -> str:
        """Identifies these options in the rows."""
        return self.mark or hashlib.sha256(self._text().encode()).hexdigest()[:16]

    def schema(self) -> StructType:
        """Return the schema of the rows."""
        return StructType([StructField(COLUMN, StringType(), metadata={METADATA: self._text()})])

    def rows(self, wanted: Iterable[FetchRange]) -> pa.RecordBatch:
        """Return the rows for ranges."""
        texts = [json.dumps(_document(each, self.fingerprint), separators=(",", ":")) for each in wanted]
        return pa.record_batch([pa.array(texts, pa.string())], schema=_SCHEMA)

    def ranges(self, batches: Iterable[pa.RecordBatch]) -> list[FetchRange]:
        """Return the ranges of rows. Raises HandOverError for a row that is not of this source."""
        return [self._range(text) for batch in batches for text in batch.column(0).to_pylist()]

    def _range(self, text: str | None) -> FetchRange:
        try:
            document = json.loads(text or "")
            if document.pop("source") == self.fingerprint:
                leader = document.pop("leader")
                found = FetchRange(**document, leader=None if leader is None else Leader(*leader))
                _check_types(found)
                return found
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise HandOverError(
                f"a row is not a range of a source with handOver=ranges: {_short(text)} ({type(error).__name__})"
            ) from error
        raise HandOverError(
            f"a row is a range of another source with handOver=ranges: {_short(text)}. A union of two such sources "
            "cannot be written: write each with its own query and appId"
        )

    def _text(self) -> str:
        marked = {} if self.mark is None else {"mark": self.mark}
        return json.dumps({"options": dict(self.options), "secrets": list(self.secrets), **marked}, sort_keys=True)


def _short(text: str | None) -> str:
    return repr(text if text is None else text[:_SHOWN])


def _check_types(found: FetchRange) -> None:
    """Check a row's fields, which may be anything. Raises ValueError if one is not what a source writes."""
    leader = found.leader
    texts = [found.topic, found.topic_id, *([] if leader is None else [leader.host])]
    numbers = [found.partition, found.start, found.end, *([] if leader is None else [leader.port, leader.epoch])]
    if found.epoch is not None:
        numbers.append(found.epoch)
    typed = all(type(each) is str for each in texts) and all(type(each) is int for each in numbers)
    if not typed or type(found.lost) is not bool or type(found.leaderless) is not bool:
        raise ValueError("a field is of another type")
    if found.partition < 0 or not 0 <= found.start < found.end <= _LARGEST_OFFSET:
        raise ValueError("a number is out of range")


def _document(wanted: FetchRange, fingerprint: str) -> dict[str, Any]:
    leader = wanted.leader
    return {
        "topic": wanted.topic,
        "topic_id": wanted.topic_id,
        "partition": wanted.partition,
        "start": wanted.start,
        "end": wanted.end,
        "epoch": wanted.epoch,
        "lost": wanted.lost,
        "leaderless": wanted.leaderless,
        "leader": None if leader is None else [leader.host, leader.port, leader.epoch],
        "source": fingerprint,
    }


def with_lost(kept: Sequence[FetchRange], whole: Iterable[FetchRange]) -> list[FetchRange]:
    """Return lost ranges for the parts of `whole` that `kept` lacks."""
    ends = {(each.topic_id, each.topic, each.partition): each.start for each in whole}
    for each in kept:
        key = each.topic_id, each.topic, each.partition
        ends[key] = max(ends[key], each.end)
    return [
        replace(each, start=end, lost=True)
        for each in whole
        if (end := ends[each.topic_id, each.topic, each.partition]) < each.end
    ]

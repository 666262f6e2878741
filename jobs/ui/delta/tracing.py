"""From a row of a table to its record, and from a record to its rows.

A row's file was added by a commit, and that commit's record names the batch and its ranges: so the record of every row
is known up to a range. Columns with partition and offset make it exact, if they agree with that range; they may have
another meaning, so they are never trusted alone. If files were merged, the row may be of any of their batches;
if another writer has rewritten the row, its origin is unknown. Each step states its certainty.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from sparkonce.exactly_once.audit_counting import Coordinates, RowsError, query, quoted
from sparkonce.jobs.ui.delta.followed import AuditState
from sparkonce.jobs.ui.delta.proof import Level, Proof, Statement, prove
from sparkonce.jobs.ui.delta.ranges import Covering
from sparkonce.jobs.ui.delta.rows import Condition, FoundRow, RowsFound, find_rows
from sparkonce.jobs.ui.delta.tables import TableWatch
from sparkonce.jobs.ui.delta.versions import VersionState
from sparkonce.offset_store.errors import OffsetStoreError
from sparkonce.offset_store.own_commits import OwnCommit
from sparkonce.offset_store.record import Writes
from sparkonce.offset_store.tables import load_table, table_filesystem
from sparkonce.words import counted

MAX_MERGED = 500
"""The number of commits to check for the sources of a merged file."""
MAX_RANGES = 20
"""The number of a batch's ranges that are proven one by one."""


@dataclass(frozen=True, slots=True)
class SourceRecord:
    """A record's coordinates in Kafka."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} at offset {self.offset}"


@dataclass(frozen=True, slots=True)
class RowTrace:
    """The origin of a row."""

    row: FoundRow
    added_by: VersionState | None
    """The commit that added its file."""
    batches: tuple[VersionState, ...]
    """The commits of its possible batches: one if it is known."""
    record: SourceRecord | None
    """Its record, if known."""
    proofs: tuple[Proof, ...]
    """Of the record's offset, or of its batch's ranges."""
    statements: tuple[Statement, ...]
    is_doubtful: bool = False
    """Whether there are more such rows than one, the row does not fit what its batch covers, or not all was proven."""

    @property
    def batch(self) -> VersionState | None:
        """The commit of its batch, if known."""
        return self.batches[0] if len(self.batches) == 1 else None

    @property
    def level(self) -> Level:
        """Whether its record, or every record of its batch, was written once."""
        levels = {proof.level for proof in self.proofs} or {Level.UNKNOWN}
        levels |= {Level.UNKNOWN} if self.is_doubtful else set()
        return next(each for each in (Level.CONTRADICTED, Level.UNKNOWN, Level.KNOWN, Level.PROVEN) if each in levels)


@dataclass(frozen=True, slots=True)
class RecordTrace:
    """The rows of a record in one table."""

    watch: TableWatch
    proofs: tuple[Proof, ...]
    """One for each source of each application that has read it."""
    statements: tuple[Statement, ...]
    rows: tuple[RowTrace, ...]
    """Found by the coordinate columns."""
    files: tuple[VersionState, ...]
    """Commits with the rows, if no column identifies the row."""

    @property
    def is_elsewhere(self) -> bool:
        """Whether no application has stored offsets of its partition in this table."""
        return not self.proofs and all(each.level is Level.KNOWN for each in self.statements)


def coordinates_of(schema: pa.Schema) -> Coordinates | None:
    """Return the columns that may have each row's partition and offset: those with the source's names for them."""
    kinds = {field.name: field.type for field in schema}
    if not all(name in kinds and pa.types.is_integer(kinds[name]) for name in ("partition", "offset")):
        return None
    is_text = "topic" in kinds and (pa.types.is_string(kinds["topic"]) or pa.types.is_large_string(kinds["topic"]))
    return Coordinates("partition", "offset", "topic" if is_text else None)


def trace_rows(watch: TableWatch, wanted: Sequence[Condition]) -> tuple[RowsFound, list[RowTrace]]:
    """Find rows, and their origins. Raises ConditionError, UnsearchableError or OffsetStoreError as `find_rows`."""
    watch.look()
    location, options = watch.followed.location, watch.followed.storage_options
    table = load_table(location, options)
    filesystem, root = table_filesystem(location, options)
    found = find_rows(table, filesystem, root, wanted)
    coordinates = coordinates_of(pa.schema(table.schema().to_arrow()))
    return found, [_trace(watch, row, coordinates) for row in found.rows]


def trace_record(watch: TableWatch, topic: str, partition: int, offset: int) -> RecordTrace:
    """Find the commits that cover a record, and its rows. Raises OffsetStoreError if the table cannot be read."""
    audit = watch.look()
    with watch.followed.lock:
        covering = watch.followed.reading().ranges.covering(topic, partition, offset)
    owners = list(dict.fromkeys(each.owner for each in covering))
    proofs = tuple(prove(watch, owner, offset, offset + 1) for owner in owners)
    statements = [] if proofs else [_why_not_covered(audit, topic, partition, offset)]
    if not proofs:
        return RecordTrace(watch, (), tuple(statements), (), ())
    rows, said = _rows_at(watch, covering, topic, partition, offset)
    holding = [each.version for proof in proofs for each in proof.coverings if each.has_rows]
    files = [] if rows else _readable(watch, dict.fromkeys(holding))
    return RecordTrace(watch, proofs, (*statements, *said), tuple(rows), tuple(files))


def _trace(watch: TableWatch, row: FoundRow, coordinates: Coordinates | None) -> RowTrace:
    version = watch.followed.reading().version_of(row.path)
    if version is None:
        text = "The commit that added its file is no longer kept, or was not read yet: its batch is not known from it"
        return _by_columns(watch, row, None, (), coordinates, [Statement(Level.UNKNOWN, text)])
    added_by = watch.version(version)
    batches, said = _batches_of(watch, added_by)
    return _by_columns(watch, row, added_by, batches, coordinates, said)


def _batches_of(watch: TableWatch, added_by: VersionState) -> tuple[tuple[VersionState, ...], list[Statement]]:
    """Return the possible batches of a commit's rows, and statements about that."""
    if added_by.batch is not None and Writes.ROWS in added_by.batch.writes:
        text = f"Version {added_by.version} added its file, as batch {added_by.batch.record.batch_id} of query "
        return (added_by,), [Statement(Level.KNOWN, f"{text}{added_by.batch.record.query_id}")]
    if added_by.removed and not added_by.changes_rows:
        return _merged(watch, added_by)
    if added_by.name == OwnCommit.BATCH_WRITE.value:
        text = "was a batch write (df.write), which has no offsets"
    elif added_by.removed:
        text = f"({added_by.name}) rewrote its file, changing rows: what the row was before is not known"
    else:
        text = (
            f"({added_by.name}) added its file, and has no record of offsets: another writer, or another table's rows"
        )
    return (), [Statement(Level.UNKNOWN, f"Version {added_by.version} {text}")]


def _merged(watch: TableWatch, merged: VersionState) -> tuple[tuple[VersionState, ...], list[Statement]]:
    """Trace merged files back to the commits that wrote them."""
    version_of = watch.followed.reading().version_of
    waiting, seen, batches, lost = [merged], {merged.version}, list[VersionState](), 0
    while waiting and len(seen) <= MAX_MERGED:
        state = waiting.pop()
        sources = {version_of(path) for path in state.removed}
        lost += None in sources
        new = sorted(each for each in sources if each is not None and each not in seen)
        seen.update(new)
        for each in _readable(watch, new):
            if each.batch is not None and Writes.ROWS in each.batch.writes:
                batches.append(each)
            elif each.removed and not each.changes_rows:
                waiting.append(each)
            else:
                lost += 1
    text = f"Version {merged.version} ({merged.name}) merged its file from others"
    said = [Statement(Level.KNOWN, f"{text}, of {counted(len(batches), 'batch')}")]
    if lost or waiting:
        said.append(Statement(Level.UNKNOWN, "Some of the files that were merged are of commits that are not known"))
        return (), said  # an incomplete list gives no candidates
    return tuple(sorted(batches, key=lambda each: each.version)), said


def _by_columns(
    watch: TableWatch,
    row: FoundRow,
    added_by: VersionState | None,
    batches: tuple[VersionState, ...],
    coordinates: Coordinates | None,
    said: list[Statement],
) -> RowTrace:
    """Make the origin exact, if the row has coordinates that fit."""
    said = list(said)
    covering = _named_by(watch, row, coordinates, said)
    has_coordinates = coordinates is not None and row.values[coordinates.offset] is not None
    versions = {each.version for each in batches}
    fitting = [each for each in covering if each.has_rows and (each.version in versions or not versions)]
    if covering and not fitting:
        text = "No batch that its file may be of covers the partition and offset in its columns: they are something "
        said.append(Statement(Level.CONTRADICTED, text + "else, or the row was changed since. They are not used"))
    owners = list(dict.fromkeys(each.owner for each in fitting))
    if len(owners) == 1 and coordinates is not None and (versions or added_by is None):
        owner, offset = owners[0], int(row.values[coordinates.offset])
        record = SourceRecord(owner[1][1].topic, owner[1][1].partition, offset)
        by_it = tuple(_readable(watch, dict.fromkeys(each.version for each in fitting)))
        if versions:
            text = "The partition and offset in its columns lie in the range of its batch"
            said.append(Statement(Level.KNOWN, text))
        else:
            text = "Only its columns say where it comes from, and one application's commits cover that"
            said.append(Statement(Level.UNKNOWN, text))
        count, counted_by = _count_rows(watch, coordinates, record)
        proof = prove(watch, owner, offset, offset + 1)
        is_doubtful = count is None or count > 1
        return RowTrace(row, added_by, by_it, record, (proof,), (*said, counted_by), is_doubtful)
    if len(owners) > 1:
        text = "Several applications, or sources, have written this record here: its row may be of any of them"
        said.append(Statement(Level.UNKNOWN, text))
    proofs = _proofs_of(watch, batches[0]) if len(batches) == 1 else ()
    is_doubtful = len(batches) == 1 and (len(proofs) < len(batches[0].moved) or has_coordinates)
    if len(batches) == 1:
        text = f"Its record is one of {counted(batches[0].records, 'offset')} of its batch: no column tells which"
        said.append(Statement(Level.UNKNOWN, text))
    return RowTrace(row, added_by, batches, None, proofs, tuple(said), is_doubtful)


def _named_by(
    watch: TableWatch, row: FoundRow, coordinates: Coordinates | None, said: list[Statement]
) -> list[Covering]:
    """Return the commits that cover the coordinates in a row's columns."""
    if coordinates is None:
        return []
    partition, offset = row.values[coordinates.partition], row.values[coordinates.offset]
    topic = None if coordinates.topic is None else row.values[coordinates.topic]
    if partition is None or offset is None or (coordinates.topic is not None and topic is None):
        said.append(Statement(Level.UNKNOWN, "Its columns with partition and offset are null"))
        return []
    with watch.followed.lock:
        found = watch.followed.reading().ranges.covering(topic, partition, offset)
    if not found:
        text = f"No kept commit covers the partition {partition} and offset {offset} that its columns have"
        said.append(Statement(Level.UNKNOWN, text))
    return found


def _proofs_of(watch: TableWatch, state: VersionState) -> tuple[Proof, ...]:
    assert state.batch is not None
    app_id = state.batch.record.app_id
    ranges = sorted(state.moved.items())[:MAX_RANGES]
    return tuple(prove(watch, (app_id, key), extent.start, extent.end) for key, extent in ranges)


def _rows_at(
    watch: TableWatch, covering: Sequence[Covering], topic: str, partition: int, offset: int
) -> tuple[list[RowTrace], list[Statement]]:
    """Return the rows whose columns have a record's coordinates."""
    table = load_table(watch.followed.location, watch.followed.storage_options)
    coordinates = coordinates_of(pa.schema(table.schema().to_arrow()))
    if coordinates is None:
        text = "The table has no columns partition and offset: which row of its batch it is, and whether the query has "
        return [], [Statement(Level.UNKNOWN, f"{text}kept one, is not known")]
    names = {each.topic for each in covering}
    name = topic if topic in names else next(iter(names))
    conditions = [
        Condition(coordinates.partition, "=", str(partition)),
        Condition(coordinates.offset, "=", str(offset)),
        *([Condition(coordinates.topic, "=", name)] if coordinates.topic else []),
    ]
    _, counted_by = _count_rows(watch, coordinates, SourceRecord(name, partition, offset))
    try:
        _, traces = trace_rows(watch, conditions)
    except (ValueError, OffsetStoreError) as error:  # tables whose files cannot be searched, or are deleted
        return [], [counted_by, Statement(Level.UNKNOWN, str(error))]
    return traces, [counted_by]


def _count_rows(watch: TableWatch, coordinates: Coordinates, record: SourceRecord) -> tuple[int | None, Statement]:
    """Count the rows with these coordinates, by delta-rs's engine, which respects deleted rows; None if it cannot."""
    conditions = [
        f"{quoted(coordinates.partition)} = {record.partition}",
        f"{quoted(coordinates.offset)} = {record.offset}",
    ]
    if coordinates.topic is not None:
        text = record.topic.replace("'", "''")
        conditions.append(f"{quoted(coordinates.topic)} = '{text}'")
    table = load_table(watch.followed.location, watch.followed.storage_options)
    try:
        sql = f"SELECT count(*) FROM counted WHERE {' AND '.join(conditions)}"  # noqa: S608  # quoted
        (count,) = (batch.column(0)[0].as_py() for batch in query(table, sql))
    except RowsError as error:
        return None, Statement(Level.UNKNOWN, f"The rows cannot be counted: {error}")
    at = f"Version {table.version()} has "
    if count == 1:
        return count, Statement(Level.KNOWN, f"{at}one row with its partition and offset")
    if count == 0:
        text = f"{at}no row with its partition and offset: the query dropped it, it marks a transaction, or it was "
        return count, Statement(Level.UNKNOWN, f"{text}deleted since")
    text = f"{at}{count:,} rows with its partition and offset: a query may make several of a record; else they are "
    return count, Statement(Level.UNKNOWN, f"{text}duplicates")


def _why_not_covered(audit: AuditState, topic: str, partition: int, offset: int) -> Statement:
    chains = [each for each in audit.chains if topic in (each.topic, each.topic_id) and each.partition == partition]
    if audit.verdict is None:
        text = f"Not known yet: the log is being read, {audit.read:,} of {audit.kept:,} commits"
    elif not chains:
        return Statement(Level.KNOWN, "No application has stored offsets of this partition in this table")
    elif all(chain.stored is not None and offset >= chain.stored for chain in chains):
        text = f"Not read yet: the next offset is {max(chain.stored or 0 for chain in chains)}"
    elif all(chain.start is None or offset < chain.start for chain in chains):
        text = "No kept commit covers it: it lies before the first that is kept, or before where the query began"
    else:
        text = "No kept commit covers it, and later offsets are stored: see the gaps in the audit"
    return Statement(Level.UNKNOWN, text)


def _readable(watch: TableWatch, versions: Iterable[int]) -> list[VersionState]:
    found = []
    for version in versions:
        try:
            found.append(watch.version(version))
        except OffsetStoreError:  # deleted by log cleanup since
            continue
    return found

"""The source of a direct query, as its sink finds it in the schema of what Spark passes.

Spark's rows are ranges (`connectors.kafka_source.hand_over`), and the metadata of their column has the options of the
source. Each task of the sink reads its ranges, decodes the records and writes the rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import TypeVar

import pyarrow as pa
from pyspark.sql.types import DateType, StructType, TimestampNTZType, TimestampType

from sparkonce.connectors.kafka_source.hand_over import COLUMN, HandOver
from sparkonce.connectors.kafka_source.options import OPTIONS, SourceOptions
from sparkonce.connectors.kafka_source.ranges import FetchRange, ReadCount
from sparkonce.connectors.values.following import ReadAs, begun_schema, begun_version, rules_of, split_rules
from sparkonce.connectors.values.letters import COLUMN as COLUMN_OF_LETTERS
from sparkonce.connectors.values.options import ADD_COLUMNS, KeyDecoding, RowCheck, SchemaOptions, ValueOptions
from sparkonce.connectors.values.registered import is_by_topic, reader_schema, resolved_of
from sparkonce.connectors.values.rules import Rules
from sparkonce.exactly_once.coverage import Part
from sparkonce.offset_store.offsets import TopicPartition
from sparkonce.options import SOURCE_PREFIX, OptionError

SQL = "sql"
PARTITIONED_BY_TIME = (DateType, TimestampType, TimestampNTZType)
"""Types of which a table cannot have all values in a partition column."""
Decoding = TypeVar("Decoding", bound=ValueOptions | KeyDecoding | None)


@dataclass(frozen=True, slots=True)
class DirectSource:
    """A source whose ranges the sink reads; a `connectors.sinks.range_reader.RangeReader`."""

    options: SourceOptions
    hand_over: HandOver
    begun_by: str | None = None
    """The rules that a part of the batch was written by, if it is to be completed by them."""
    table_rules: Set[str] = frozenset()
    """The names of the table's rules about rows, if a row that breaks one is a dead letter."""

    @property
    def schema(self) -> StructType:
        """The schema of the rows."""
        return self.options.rows.spark_schema()

    @property
    def rules(self) -> str:
        """What makes rows and dead letters of records: a digest of the options of values and of the SELECT's text.

        Beside it is the id of the schema that values are read as, if a registry has it, and where the query follows a
        subject its version and the subject; and the names of the table's rules.
        """
        own = rules_of(self.options.rows.digest(), self.options.rows.decoding)
        return self.begun_by or str(replace(Rules.parse(own), table=self.table_rules))

    @property
    def letter_rules(self) -> Set[str]:
        """The names of the table's rules by which rows are dead letters: as many as when the batch was begun."""
        return Rules.parse(self.rules).table

    @property
    def followed(self) -> SchemaOptions | None:
        """How values are decoded, if each batch is read as the latest version of a subject."""
        rows = self.options.rows
        follows = rows.schema_evolution == ADD_COLUMNS and isinstance(rows.decoding, SchemaOptions)
        return rows.decoding if follows and isinstance(rows.decoding, SchemaOptions) else None

    def with_rules(self, rules: str) -> DirectSource | None:
        """See `RangeReader.with_rules`: another schema of the registry's is no obstacle, nor are more table rules.

        Raises:
            RegistryError: if the registry does not answer, or no longer has that schema.
        """
        noted, today, rows = Rules.parse(rules), Rules.parse(self.rules), self.options.rows
        decoding, read_as = rows.decoding, split_rules(rules)[1]
        if noted.digest != today.digest:
            # Written before the table was partitioned, or by a version that stopped at what no partition has.
            rows = replace(rows, partitioned=())
            if noted.digest not in (rows.digest(), rows.digest(any_time=False)):
                return None
        if not noted.table <= today.table:
            return None
        if noted.read_as != today.read_as:
            if not isinstance(decoding, SchemaOptions) or decoding.registry is None or read_as is None:
                return None
            decoding = _begun(decoding, read_as)
        keys = _lacking(rows.key_decoding, noted.unknown)
        rows = replace(rows, decoding=_lacking(decoding, noted.unknown), key_decoding=keys)
        return replace(self, options=replace(self.options, rows=rows), begun_by=rules)

    def partitioned_by(self, columns: Sequence[str]) -> DirectSource:
        """Return this source for rows of a table that is partitioned by columns."""
        wanted = {name.lower() for name in columns}
        timed = (field.name for field in self.schema if isinstance(field.dataType, PARTITIONED_BY_TIME))
        rows = replace(self.options.rows, partitioned=tuple(name for name in timed if name.lower() in wanted))
        return replace(self, options=replace(self.options, rows=rows))

    def with_table_rules(self, names: Set[str]) -> DirectSource:
        """Return this source for a table with these rules, if there are dead letters."""
        return replace(self, table_rules=names) if self.options.rows.dead_letters else self

    def checking(self, check: RowCheck) -> DirectSource:
        """Return this source for rows of a table that asks something of rows."""
        return replace(self, options=replace(self.options, rows=replace(self.options.rows, check=check)))

    @property
    def begun_as(self) -> ReadAs | None:
        """The registry's schema that a part of the batch was read as, if it is another one than the query's."""
        decoding = self.options.rows.decoding
        is_older = isinstance(decoding, SchemaOptions) and decoding.is_begun
        return split_rules(self.begun_by)[1] if self.begun_by is not None and is_older else None

    def completing(self, other: DirectSource) -> DirectSource:
        """Return this source for the batch that another one completes, which has the columns of a newer schema."""
        own, theirs = self.options.rows.decoding, other.options.rows.decoding
        assert isinstance(own, SchemaOptions)
        assert isinstance(theirs, SchemaOptions)
        decoding = replace(own, stop_for=theirs.stop_for, version_of=theirs.version_of, is_begun=theirs.is_begun)
        rows = replace(self.options.rows, decoding=decoding, partitioned=other.options.rows.partitioned)
        return replace(self, options=replace(self.options, rows=rows), begun_by=other.begun_by)

    def by_topic(self, handed_over: Iterable[pa.RecordBatch]) -> dict[str, list[pa.RecordBatch]]:
        """Return what Spark has passed to a task, divided by topic. Raises HandOverError for a row that is no range."""
        found: dict[str, list[FetchRange]] = {}
        for each in self.hand_over.ranges(handed_over):
            found.setdefault(each.topic, []).append(each)
        return {topic: [self.hand_over.rows(ranges)] for topic, ranges in found.items()}

    def open(self, handed_over: Iterable[pa.RecordBatch]) -> DirectReading:
        """Return the ranges that Spark passed to a task. Raises HandOverError for a row that is none of this source."""
        return DirectReading(self.options, self.hand_over.ranges(handed_over))


@dataclass(frozen=True, slots=True)
class DirectReading:
    """The ranges of one task; a `connectors.sinks.range_reader.Reading`."""

    options: SourceOptions
    wanted: Sequence[FetchRange]
    count: ReadCount = field(default_factory=ReadCount)
    """What was read so far."""

    @property
    def parts(self) -> tuple[Part, ...]:
        """What the task is to read, in order."""
        source = self.options.source
        return tuple(
            Part(source, TopicPartition(each.topic, each.topic_id, each.partition), each.start, each.end)
            for each in self.wanted
        )

    def rows(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the ranges, in order; raises as `connectors.kafka_source.reading.read_range`."""
        from sparkonce.connectors.kafka_source.reading import read_ranges  # loads the compiler: only in workers

        return read_ranges(self.options, self.wanted, self.count)


def _begun(decoding: SchemaOptions, read_as: ReadAs) -> SchemaOptions:
    """Return how values of a batch are read that was begun with another version.

    Raises:
        RegistryError: if the registry does not answer, or no longer has that version.
    """
    assert decoding.registry is not None
    reader = begun_schema(decoding, read_as)
    # Newer versions are no reason to stop: the batch was begun with this one. But values of newer versions are:
    # without its checkpoint, the query has batches that reach beyond the begun one.
    version = begun_version(decoding, read_as)
    return replace(
        decoding,
        reader=reader,
        reader_id=read_as.id,
        stop_for=None if version is None else decoding.stop_for,
        version_of=version,
        is_begun=True,
    )


def _lacking(decoding: Decoding, unknown: Set[str]) -> Decoding:
    """Read values as if the registry lacked these schemas and no others."""
    return replace(decoding, unknown=unknown) if isinstance(decoding, SchemaOptions) else decoding


def find_source(
    format_name: str,
    schema: StructType,
    given: Mapping[str, str],
    read_as: ReadAs | None = None,
    *,
    divides: bool = False,
) -> DirectSource | None:
    """Return the source, None if the rows are records; ``given`` are the options of the sink.

    With ``read_as``, values are read as that schema, and not as the one that the query was started with. A source that
    only ``divides`` ranges by topic needs no schemas.

    Raises:
        OptionError: if the rows are no longer those of the source, a secret of it is missing, or the option ``sql``
            cannot work.
        HandOverError: if the metadata cannot be read.
        RegistryError: if the schema of ``read_as`` is not available.
    """
    found, secrets = HandOver.of_rows(schema), _secrets(given)
    if found is None and COLUMN not in schema.names:
        _check_only_direct(format_name, given)
        return None
    if found is None or schema.names != [COLUMN]:
        columns = ", ".join(schema.names)
        raise OptionError(
            f"{format_name}: the source has handOver=ranges, so the rows are ranges to read, and the sink must get "
            f"them unchanged, as the column {COLUMN} alone; it gets {columns}. Remove what is between source and sink "
            "(select, withColumn, join, groupBy, …) and name columns with the source's option columns and the sink's "
            "option sql; or set handOver=rows on the source"
        )
    hand_over = found
    missing = [name for name in hand_over.secrets if name not in secrets]
    if missing:
        raise OptionError(
            f"{format_name}: the source has the option {missing[0]}, a secret, which rows do not carry: set "
            f"{SOURCE_PREFIX}{missing[0]} on the sink, too. sparkonce.write_stream(rows) and sparkonce.ingest do that"
        )
    unknown = sorted(secrets.keys() - set(hand_over.secrets))
    if unknown:
        raise OptionError(
            f"{format_name}: option {SOURCE_PREFIX}{unknown[0]}: the source has no secret of that name; options with "
            f"the prefix {SOURCE_PREFIX} repeat those that are: set all others on the source only"
        )
    options = SourceOptions.read({**hand_over.options, **secrets})
    if read_as is not None:
        options = _reading_as(options, {**hand_over.options, **secrets}, read_as)
    by_topic = is_by_topic(hand_over.options)
    if by_topic and not divides:
        raise OptionError(
            f"{format_name}: with isolateTables=true and without valueSchema, each topic is read as the registry's "
            "schemas of its own: write a table for each topic (delta_once with {topic} in its path)"
        )
    sql = None if by_topic else _given(given, SQL)
    return DirectSource(options if sql is None else _with_sql(options, sql), hand_over)


def reads_by_topic(schema: StructType) -> bool:
    """Whether rows are ranges of topics that are each read as the registry's latest schemas of its own."""
    found = HandOver.of_rows(schema)
    return found is not None and is_by_topic(found.options)


def schema_of_topic(schema: StructType, given: Mapping[str, str], topic: str) -> StructType:
    """Return the schema of what Spark passes as that of one topic, if each has schemas of its own.

    Raises:
        OptionError: if they cannot be read.
    """
    found = HandOver.of_rows(schema)
    if found is None or not is_by_topic(found.options):
        return schema
    own = resolved_of(OPTIONS, {**found.options, **_secrets(given)}, topic)
    return replace(HandOver.of(own), mark=found.fingerprint).schema()


def reject_ranges(format_name: str, schema: StructType) -> None:
    """Reject rows that are ranges where nobody reads them, as in foreachBatch. Raises OptionError if they are."""
    if COLUMN in schema.names:
        raise OptionError(
            f"{format_name}: the source has handOver=ranges, so the rows are ranges to read, not records, and only "
            "writeStream reads them: set handOver=rows on the source of a query with foreachBatch"
        )


def _reading_as(options: SourceOptions, given: Mapping[str, str], read_as: ReadAs) -> SourceOptions:
    """Return the options that the source would have if the query were started with another schema of its subject."""
    decoding = options.rows.decoding
    assert isinstance(decoding, SchemaOptions)
    assert decoding.registry is not None
    if decoding.reader_id != read_as.id:
        text = reader_schema(decoding.registry, read_as.id, decoding.format)
        options = SourceOptions.read({**given, "valueschema": text, "valueschemaid": str(read_as.id)})
        decoding = options.rows.decoding
        assert isinstance(decoding, SchemaOptions)
    rows = replace(options.rows, decoding=replace(decoding, version_of=read_as.of_subject))
    return replace(options, rows=rows)


def _with_sql(options: SourceOptions, sql: str) -> SourceOptions:
    from sparkonce.connectors.sql.select import check_select  # imported lazily: few queries have it

    select = check_select(sql, options.rows.record_schema())
    if options.rows.dead_letters and COLUMN_OF_LETTERS in select.schema.names:
        raise OptionError(
            f"option sql: the column {COLUMN_OF_LETTERS} is that of dead letters, which includeDeadLetters=true adds: "
            "name it differently"
        )
    return replace(options, rows=options.rows.with_select(select))


def _check_only_direct(format_name: str, given: Mapping[str, str]) -> None:
    """Reject options of a direct query where the rows are records."""
    secret = next(iter(_secrets(given)), None)
    if secret is not None:
        raise OptionError(
            f"{format_name}: option {SOURCE_PREFIX}{secret} is for a source with handOver=ranges, which this sink "
            "would read; leave it out"
        )
    if _given(given, SQL) is not None:
        raise OptionError(
            f"{format_name}: option {SQL} is for a source with handOver=ranges, whose records the sink reads; here "
            "Spark has the records: use DataFrame operations (selectExpr, where, …), or set handOver=ranges"
        )


def _given(given: Mapping[str, str], name: str) -> str | None:
    return next((text for key, text in given.items() if key.lower() == name), None)


def _secrets(given: Mapping[str, str]) -> dict[str, str]:
    named = {name.lower(): text for name, text in given.items()}
    return {name.removeprefix(SOURCE_PREFIX): text for name, text in named.items() if name.startswith(SOURCE_PREFIX)}

"""What goes into one table: options, schema and source of its rows, and the sink of a batch that is made of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pyspark.sql.types import StructType

from sparkonce.connectors.delta_sink.features import TableFacts
from sparkonce.connectors.delta_sink.options import FORMAT, SinkOptions
from sparkonce.connectors.delta_sink.schema import SchemaError, TableCheck, rule_names
from sparkonce.connectors.delta_sink.table import TableError, cached_store
from sparkonce.connectors.delta_sink.target import DeltaPlan, DeltaTarget, last_rules
from sparkonce.connectors.direct.source import PARTITIONED_BY_TIME, DirectSource, find_source
from sparkonce.connectors.formats.dead_letter_target import (
    DeadLetterTarget,
    check_column,
    letters_table,
    letters_topic,
    rows_schema,
    split,
)
from sparkonce.connectors.reference.hints import checked
from sparkonce.connectors.sinks.range_reader import RangeReader
from sparkonce.connectors.sinks.stream_sink import StreamSink
from sparkonce.connectors.sinks.target import Target, TargetPlan
from sparkonce.connectors.values.following import version_of_batch
from sparkonce.connectors.values.options import ADD_COLUMNS
from sparkonce.exactly_once.guarantee import Guarantee
from sparkonce.offset_store.errors import OffsetStoreError, StoreMissingError
from sparkonce.options import OptionError


@dataclass(frozen=True, slots=True)
class TableQuery:
    """What goes into one table: all rows of a query, or those of some of its topics."""

    given: Mapping[str, str]
    """The options as they were given."""
    options: SinkOptions
    schema: StructType
    """Of what Spark passes."""
    source: DirectSource | None
    replace: bool = False

    @classmethod
    def of(cls, given: Mapping[str, str], schema: StructType, *, replace: bool = False) -> TableQuery:
        """Read the options. Raises OptionError for what cannot work."""
        options = checked(SinkOptions.read, given)
        return cls(given, options, schema, find_source(FORMAT, schema, given), replace)

    def sink(self) -> StreamSink:
        """Return the sink of a batch, to finish it. Raises OptionError as `stream_sink`."""
        return stream_sink(self.options, self.schema, replace=self.replace, source=self.source)

    def begun(self, begin: Callable[[StreamSink], None]) -> StreamSink:
        """Return the sink of a batch that ``begin`` has begun, read as the schemas of its values ask for.

        Raises:
            DeliveryError, OffsetStoreError, OptionError, RegistryError, SchemaError, TableError: if it must not be
                written.
        """
        if self.source is None or self.source.followed is None:
            return self._begun(self.source, begin)
        read_as = version_of_batch(self.source.followed, last_rules(self.options))
        try:
            return self._begun(find_source(FORMAT, self.schema, self.given, read_as), begin)
        except (OptionError, SchemaError, TableError) as error:
            raise type(error)(f"{error}. By schemaEvolution={ADD_COLUMNS}, values are read as {read_as}") from error

    def _begun(self, source: DirectSource | None, begin: Callable[[StreamSink], None]) -> StreamSink:
        """Return a sink that has begun the batch; one that is to be completed also has the columns that it began with.

        A newer schema may lack some of them. To begin a batch a second time changes nothing where that is exactly-once.
        """
        options, schema = self.options, self.schema
        source = None if source is None else _for_table(source, options)
        sink = stream_sink(options, schema, replace=self.replace, source=source)
        begin(sink)
        reader = sink.reader
        if not isinstance(reader, DirectSource) or options.guarantee is not Guarantee.EXACTLY_ONCE:
            return sink.checked_by(_checking)
        if reader.begun_as is None:
            return sink.checked_by(_checking)
        before = find_source(FORMAT, schema, self.given, reader.begun_as)
        assert before is not None, "its rows are ranges"
        sink = stream_sink(options, schema, replace=self.replace, source=before.completing(reader))
        begin(sink)
        return sink.checked_by(_checking)


def _checking(reader: RangeReader, plan: TargetPlan) -> RangeReader:
    """Have a direct query check rows where it knows which record a row is made of.

    Raises:
        TableError: if the table has lost a rule since the query looked which there are.
    """
    assert isinstance(plan, DeltaPlan)
    if not isinstance(reader, DirectSource):
        return reader
    if not reader.letter_rules <= plan.rules:
        raise TableError("the table's constraints changed while a batch began: start the query again")
    rules = reader.letter_rules if reader.options.rows.dead_letters else plan.rules
    return reader.checking(TableCheck(plan.settings.schema, rules)) if rules else reader


def stream_sink(
    options: SinkOptions, schema: StructType, *, replace: bool = False, source: DirectSource | None = None
) -> StreamSink:
    """Return the sink of a query whose rows are of ``schema``; with ``replace``, as in outputMode complete.

    With ``source``, the rows are ranges, and those that are written are read from it.

    Raises:
        OptionError: if dead letters have a place and no column, or a column and no place; or for options that
            conflict.
    """
    if source is not None and source.followed is not None and not options.merge_schema:
        raise OptionError(
            f"{FORMAT}: the source has schemaEvolution={ADD_COLUMNS}, which adds columns to the table while the query "
            "runs: allow that with mergeSchema=true"
        )
    schema = schema if source is None else source.schema
    check_column(FORMAT, schema, options.dead_letters)
    if replace:
        _check_complete(options)
    table = DeltaTarget(options, rows_schema(schema), replace=replace)
    targets: list[Target] = [table] if options.dead_letters is None else [_letters(options), table]
    routing = None if options.dead_letters is None else split
    return StreamSink(FORMAT, options.checkpoint, options.app_id, targets, routing, options.storage_options, source)


def _for_table(source: DirectSource, options: SinkOptions) -> DirectSource:
    """Return the source for the table as it is, or will be; unchanged if that cannot be read, as others report."""
    timed = any(isinstance(each.dataType, PARTITIONED_BY_TIME) for each in source.schema)
    if not timed and options.dead_letters is None:
        return source
    try:
        facts = TableFacts.of(cached_store(options).snapshot_unchecked().state)
    except StoreMissingError:
        return source.partitioned_by(options.partition_by)
    except OffsetStoreError:
        return source
    return source.partitioned_by(facts.partition_columns).with_table_rules(rule_names(facts))


def _check_complete(options: SinkOptions) -> None:
    if options.guarantee is not Guarantee.EXACTLY_ONCE:
        raise OptionError(
            f"{FORMAT}: outputMode complete replaces the table's rows and its offsets in one commit, which is "
            f"exactly-once: leave deliveryGuarantee={options.guarantee.value} out"
        )
    if options.dead_letters is not None:
        raise OptionError(
            f"{FORMAT}: deadLetters={options.dead_letters} cannot be combined with outputMode complete: such a query "
            "keeps state, so a dead letter could be of any batch. Mark and write dead letters in a query without state"
        )


def _letters(options: SinkOptions) -> DeadLetterTarget:
    place = options.dead_letters
    assert place is not None
    if place.table is not None:
        return letters_table(
            place.table, options.app_id, options.checkpoint, options.guarantee, options.storage_options
        )
    assert place.topic is not None
    assert options.kafka is not None
    assert options.producer is not None
    return letters_topic(place.topic, options.app_id, options.guarantee, options.kafka, options.producer)

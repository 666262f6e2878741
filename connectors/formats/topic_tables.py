"""A table for each topic: a path with ``{topic}``, or a JSON object of the paths, and one query for all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set

from pyspark.sql.types import StructType

from sparkonce.connectors.delta_sink.options import FORMAT, PATH, SinkOptions
from sparkonce.connectors.direct.source import find_source, schema_of_topic
from sparkonce.connectors.formats.table_query import TableQuery
from sparkonce.connectors.kafka_source.data_loss import DataLossError
from sparkonce.connectors.kafka_source.decode import CorruptBatchError
from sparkonce.connectors.kafka_source.hand_over import HandOver
from sparkonce.connectors.kafka_source.ranges import NoLeaderError, RecreatedTopicError
from sparkonce.connectors.kafka_source.topic_choice import pattern
from sparkonce.connectors.reference.hints import checked
from sparkonce.connectors.runtime.cache import MAX_TABLES, LruCache
from sparkonce.connectors.schema_registry.client import RegistryError, UnreachableRegistryError
from sparkonce.connectors.sinks.shared_batch import SharedBatchSink
from sparkonce.connectors.sinks.stream_sink import StreamSink
from sparkonce.connectors.values.evolution import NewerThanBegunError, SchemaChangedError, UnknownWriterError
from sparkonce.connectors.values.options import RESTART
from sparkonce.connectors.values.registered import is_by_topic
from sparkonce.exactly_once.batch import BatchEntry
from sparkonce.exactly_once.errors import (
    CheckpointError,
    DeliveryError,
    FencedError,
    InternalError,
    OffsetMismatchError,
    PlanError,
    UnknownOutcomeError,
)
from sparkonce.exactly_once.guarantee import Guarantee
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError
from sparkonce.offset_store.by_topic import TopicNames, tables_by_topic
from sparkonce.offset_store.errors import OffsetStoreError
from sparkonce.offset_store.locations import Location
from sparkonce.options import OptionError

APP_ID, EVOLUTION = "appid", "schemaevolution"
AT_ONCE = 16
"""How many tables of an object store are looked at, and written, at once."""
_NAMES = (PATH, "deadletters", "offsetstore")
"""Options that may have ``{topic}`` or a group, in lower case."""
_OF_THE_QUERY = (
    CheckpointError,
    ConnectionError,
    FencedError,
    InternalError,
    PlanError,
    TimeoutError,
    UnknownOutcomeError,
    UnreachableRegistryError,
)
"""Errors that no table has alone, and those after which nobody knows what a table has: they stop the query."""
_OF_A_TABLE = (
    ArithmeticError,
    CorruptBatchError,
    DataLossError,
    DeliveryError,
    NewerThanBegunError,
    NoLeaderError,
    OffsetStoreError,
    OSError,
    RecreatedTopicError,
    RegistryError,
    SchemaChangedError,
    UnknownWriterError,
    ValueError,
)
"""What a table, its place, its records or their schemas are refused for."""
_kept_queries: LruCache[tuple[str, frozenset[tuple[str, str]], str], TableQuery] = LruCache(MAX_TABLES)
"""What goes into a table, by its topic, the options and the schema: read once in each process."""


class TopicTables:
    """The tables of a query whose path has ``{topic}``: one for each topic, under an appId of its own."""

    def __init__(self, given: Mapping[str, str], schema: StructType, *, isolates: bool = False) -> None:
        """Take the options of the query, the schema of what Spark passes, and whether a table may be left out."""
        self._given = dict(given)
        self._isolates = isolates
        self._schema = schema
        self._names = _names_of(schema)
        options = _source_options(schema)
        self._is_latest_each_time = is_by_topic(options) and options.get(EVOLUTION) == RESTART
        """A newer schema is read from the next batch on: to start the query again would interrupt the other tables."""
        self._key = frozenset(given.items()), schema.json()

    @staticmethod
    def are_of(given: Mapping[str, str], schema: StructType) -> bool:
        """Whether a query's path is one for each topic."""
        names = _names_of(schema)
        return any(name.lower() == PATH and names.are_in(text) for name, text in given.items())

    @classmethod
    def sink_of(cls, given: Mapping[str, str], schema: StructType, *, replace: bool = False) -> SharedBatchSink:
        """Return the sink of such a query. Raises OptionError if its rows are not ranges, or it replaces them."""
        options = checked(SinkOptions.read, given)
        source = find_source(FORMAT, schema, given, divides=True)
        if source is None:
            raise OptionError(
                f"{FORMAT}: {PATH}={options.table} is a table for each topic, and the rows do not say which topic they "
                "are of: set handOver=ranges on the source, where the sink reads the records"
            )
        if replace:
            raise OptionError(f"{FORMAT}: outputMode complete cannot be combined with a table for each topic")
        if source.options.isolate_tables and options.guarantee is Guarantee.AT_MOST_ONCE:
            raise OptionError(
                f"{FORMAT}: isolateTables cannot be combined with deliveryGuarantee={options.guarantee.value}: a table "
                "that is left out would never get what it has refused, since its offsets are stored first"
            )
        tables = cls(given, schema, isolates=source.options.isolate_tables)
        return SharedBatchSink(FORMAT, options.checkpoint, options.storage_options, source, tables)

    @property
    def at_once(self) -> int:
        """See `Tables`."""
        path = next(text for name, text in self._given.items() if name.lower() == PATH)
        path = next(iter((tables_by_topic(path) or {}).values()), path)
        return 1 if Location.parse(path).is_local else AT_ONCE

    def of(self, topics: Iterable[str]) -> dict[str, frozenset[str]]:
        """See `Tables`."""
        return {topic: frozenset([topic]) for topic in topics}

    def begun(self, name: str, entry: BatchEntry, attempt_id: str, topics: Set[str]) -> StreamSink:
        """See `Tables`."""
        if self._is_latest_each_time:
            _kept_queries.pop((name, *self._key))
        return self._query(name).begun(
            lambda sink: sink.begin_batch(sink.batch_of(entry, attempt_id, sink.rules, topics))
        )

    def sink(self, name: str) -> StreamSink:
        """See `Tables`."""
        return self._query(name).sink()

    def is_isolated(self, error: Exception) -> bool:
        """See `Tables`."""
        return self._isolates and is_of_one_table(error)

    def _query(self, topic: str) -> TableQuery:
        def of_topic() -> TableQuery:
            given = self._options_of(topic)
            return TableQuery.of(given, schema_of_topic(self._schema, given, topic))

        return _kept_queries.get((topic, *self._key), of_topic)

    def _options_of(self, topic: str) -> dict[str, str]:
        named = {name: self._names.of(text, topic) for name, text in self._given.items() if name.lower() in _NAMES}
        app_id = {name: self._names.app_id(text, topic) for name, text in self._given.items() if name.lower() == APP_ID}
        return self._given | named | app_id


def is_of_one_table(error: Exception) -> bool:
    """Whether an error of one table says nothing about the others."""
    if isinstance(error, OffsetMismatchError) and error.is_overlap:
        return False
    if isinstance(error, KafkaError):
        return error.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return isinstance(error, _OF_A_TABLE) and not any(
        isinstance(each, _OF_THE_QUERY) for each in (error, error.__cause__)
    )


def _names_of(schema: StructType) -> TopicNames:
    """Return what names are for each topic that the source chooses; ``schema`` is that of what Spark passes."""
    text = _source_options(schema).get("subscribepattern")
    return TopicNames(None if text is None else pattern(text).compiled)


def _source_options(schema: StructType) -> Mapping[str, str]:
    found = HandOver.of_rows(schema)
    return {} if found is None else found.options

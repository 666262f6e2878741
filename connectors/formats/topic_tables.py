"""A table for each topic: a path with ``{topic}``, and one query for all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set

from pyspark.sql.types import StructType

from sparkonce.connectors.delta_sink.options import FORMAT, PATH
from sparkonce.connectors.formats.table_query import TableQuery
from sparkonce.connectors.runtime.cache import LruCache
from sparkonce.connectors.sinks.shared_batch import SharedBatchSink
from sparkonce.connectors.sinks.stream_sink import StreamSink
from sparkonce.exactly_once.batch import BatchEntry
from sparkonce.offset_store.by_topic import app_id_of_topic, is_by_topic, of_topic
from sparkonce.options import OptionError

APP_ID = "appid"
_NAMES = (PATH, "deadletters", "offsetstore")
"""Options that may have ``{topic}``, in lower case."""
_kept_queries: LruCache[tuple[str, frozenset[tuple[str, str]], str], TableQuery] = LruCache(10_000)
"""What goes into a table, by its topic, the options and the schema: read once in each process."""


class TopicTables:
    """The tables of a query whose path has ``{topic}``: one for each topic, under an appId of its own."""

    def __init__(self, given: Mapping[str, str], schema: StructType) -> None:
        """Take the options of the query, and the schema of what Spark passes."""
        self._given = dict(given)
        self._schema = schema
        self._key = frozenset(given.items()), schema.json()

    @staticmethod
    def find(given: Mapping[str, str]) -> bool:
        """Whether a query's table is a template."""
        return any(name.lower() == PATH and is_by_topic(text) for name, text in given.items())

    @classmethod
    def sink_of(cls, given: Mapping[str, str], schema: StructType, *, replace: bool = False) -> SharedBatchSink:
        """Return the sink of such a query. Raises OptionError if its rows are not ranges, or it replaces them."""
        query = TableQuery.of(given, schema)
        source, options = query.source, query.options
        if source is None:
            raise OptionError(
                f"{FORMAT}: {PATH}={options.table} is a table for each topic, and the rows do not say which topic they "
                "are of: set handOver=ranges on the source, where the sink reads the records"
            )
        if replace:
            raise OptionError(f"{FORMAT}: outputMode complete cannot be combined with a table for each topic")
        return SharedBatchSink(FORMAT, options.checkpoint, options.storage_options, source, cls(given, schema))

    def of(self, topics: Iterable[str]) -> dict[str, frozenset[str]]:
        """See `Tables`."""
        return {topic: frozenset([topic]) for topic in topics}

    def begun(self, name: str, entry: BatchEntry, attempt_id: str, topics: Set[str]) -> StreamSink:
        """See `Tables`."""
        return self._query(name).begun(
            lambda sink: sink.begin_batch(sink.batch_of(entry, attempt_id, sink.rules, topics))
        )

    def sink(self, name: str) -> StreamSink:
        """See `Tables`."""
        return self._query(name).sink()

    def _query(self, topic: str) -> TableQuery:
        key = (topic, *self._key)
        return _kept_queries.get(key, lambda: TableQuery.of(self._options_of(topic), self._schema))

    def _options_of(self, topic: str) -> dict[str, str]:
        named = {name: text for name, text in self._given.items() if name.lower() in _NAMES}
        app_id = {name: app_id_of_topic(text, topic) for name, text in self._given.items() if name.lower() == APP_ID}
        return self._given | {name: of_topic(text, topic) for name, text in named.items()} | app_id

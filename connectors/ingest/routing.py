"""From settings to tables, and from tables to queries.

A `Flow` is what is read into one table, with all options, checked. Its appId is named after it, so its name must not
change; it does not depend on the other tables. Two flows never share a name or a table: what topic a table's rows are
from would depend on the order of commits, and compactions would stand in each other's way.

A flow is a query, with a checkpoint named after it too. With ``{topic}`` in the path or name, direct queries write a
table for each topic (`connectors.sinks.shared_batch`): then one flow, that of the whole entry, is the query of all its
tables.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
from collections import ChainMap
from collections.abc import Collection, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

from pyspark.sql.types import StructType

from sparkonce.connectors.catalogs.names import TableName
from sparkonce.connectors.delta_sink.options import FORMAT, NOT_BESIDE, PATH, TABLE_NAME, SinkOptions
from sparkonce.connectors.delta_sink.schema import SchemaError, check_partition_columns
from sparkonce.connectors.direct.source import SQL, DirectSource, find_source
from sparkonce.connectors.formats.dead_letter_target import rows_schema
from sparkonce.connectors.formats.table_query import stream_sink
from sparkonce.connectors.ingest.settings import IngestSettings, IngestTable, Transform, names
from sparkonce.connectors.kafka_source.hand_over import HandOver
from sparkonce.connectors.kafka_source.java_regex import PatternError
from sparkonce.connectors.kafka_source.options import OPTIONS, SourceOptions
from sparkonce.connectors.kafka_source.topic_choice import TopicPattern, pattern
from sparkonce.connectors.reference.hints import checked
from sparkonce.connectors.sinks.dead_letters import TABLE, TOPIC
from sparkonce.connectors.values.options import ADD_COLUMNS, AVRO, JSON_SCHEMA, PROTOBUF, RESTART
from sparkonce.connectors.values.registered import columns_of_latest, resolved
from sparkonce.exactly_once.guarantee import Guarantee
from sparkonce.kafka.client.producer_settings import of_producer
from sparkonce.offset_store.by_topic import TOPIC_KEY, TopicNames, placeholders
from sparkonce.offset_store.locations import Location
from sparkonce.offset_store.offsets import HAND_OVER, RANGES
from sparkonce.options import KAFKA_PREFIX, SOURCE_PREFIX, OptionError

_log = logging.getLogger("sparkonce.ingest")

EARLIEST = "earliest"
SHARED = "tables-"
"""The beginning of the names of queries that write several tables, and of their checkpoints."""
NOTHING_FORBIDS = "nothing forbids it"
_NOT_IN_TABLES = re.compile(r"[^A-Za-z0-9_]")
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]")
_NOT_IN_TEMPLATES = re.compile(r"(\{[^{}]*\})|[^A-Za-z0-9._-]")
"""As `_NOT_IN_NAMES`, but for what a topic is filled into."""
_SAMPLE = "topic"
_FORMATS, _BY_SCHEMA = frozenset({"valueformat", "keyformat"}), frozenset({AVRO, PROTOBUF, JSON_SCHEMA})
_OWN_OF_SOURCE = {
    "subscribe": "set topics",
    "subscribePattern": "set topic_pattern",
    "assign": "all partitions of the topics are read",
    "startingOffsets": "set starting_offsets",
    "columns": "set columns",
    "valueFormat": "set value_format",
    "valueSchema": "set value_schema",
    "schemaEvolution": "set schema_evolution",
    "includeDeadLetters": "set dead_letters",
    HAND_OVER: "set direct",
    "offsetStore": "a query without a checkpoint always begins where its table ends",
    "appId": "set app_id and name, or table_app_id",
    "isolateTables": "a table that refuses its rows holds up no other",
    "untilOffsets": "tables that are behind catch up to where the others are",
}
_OWN_OF_SINK = {
    PATH: "set path",
    TABLE_NAME: "set table",
    SQL: "set sql",
    "appId": "set app_id and name, or table_app_id",
    "checkpointLocation": "set checkpoint",
    "deliveryGuarantee": "set delivery_guarantee",
    "partitionBy": "set partition_by",
    "mergeSchema": "set merge_schema",
    "deadLetters": "set dead_letters",
    "offsetStore": "offsets are in the tables' own commits; for lag tools, set commitGroup of the source",
    NOT_BESIDE: "no two topics of an ingestion that have tables of their own share one",
}
"""Options that entries or the ingestion itself set, and what to do instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """One query, from topics into one table."""

    name: str
    topics: str
    """What is read, in words."""
    table: str | None
    """The table's name in a catalog; None if `path` has it."""
    path: str | None
    app_id: str
    checkpoint: str
    direct: bool
    why: str
    """Why the records are read by the sink, or why they pass through Spark."""
    source: Mapping[str, str] = field(repr=False)
    """Options; they may hold secrets."""
    sink: Mapping[str, str] = field(repr=False)
    sql: str | None = None
    """Only if Spark runs it; else it is an option of the sink."""
    transform: Transform | None = field(default=None, repr=False)
    compact_every: int = 0
    shared_by: str | None = None
    """The name of the flow whose query writes this table; None if it has a query of its own."""
    is_shared: bool = False
    """Whether this is the query of several tables, and no table itself."""
    tables: Mapping[str, str] = field(default_factory=dict)
    """Of such a query: the names of its tables in a catalog by their topics; empty if they have paths."""
    query_name: str = ""
    """The name of its query in Spark."""

    @property
    def query(self) -> str:
        """The name of the flow whose query writes this table."""
        return self.shared_by or self.name

    @property
    def reads_all(self) -> bool:
        """Whether it begins each topic with its first record."""
        which = "kafka.", "starting", "subscribe"  # the others may need a registry's answer first
        given = {name: text for name, text in self.source.items() if name.lower().startswith(which)}
        return SourceOptions.read(given).reads_all

    @property
    def place(self) -> str:
        """The table, in words."""
        return self.table or self.path or ""

    def __str__(self) -> str:
        return f"{self.name} ({self.topics} -> {self.place})"


class Route:
    """One table of the settings, and the flows that it makes."""

    def __init__(self, settings: IngestSettings, number: int) -> None:
        """Read the table of this number, from 1.

        Raises:
            OptionError: for what cannot work; the message begins with the table.
        """
        self._settings, self._number = settings, number
        self._given = settings.tables[number - 1]
        try:
            self._topics = names(self._given.topics)
            self.pattern = None if self._given.topic_pattern is None else _pattern(self._given.topic_pattern)
            self._names = TopicNames(None if self.pattern is None else self.pattern.compiled)
            self.is_routed = self._check_placeholders()
            self._direct, self._why = _mode(self._given)
            self.shared_name = self._shared_name()
            """The name of the query that writes all tables of this entry; None if each has its own."""
            for sample in self.flows([], sample=True):
                if not (self.finds_topics and _is_named_after_topic(sample.source)):
                    check_flow(sample)
        except OptionError as error:
            raise OptionError(f"{settings.where(number)}{error}") from None

    @property
    def finds_topics(self) -> bool:
        """Whether topics that are created later become flows of their own."""
        return self.is_routed and self.pattern is not None

    def flows(self, existing: Iterable[str], *, sample: bool = False) -> list[Flow]:
        """Return the flows, given the topics that exist; with ``sample``, of one topic that stands for all."""
        if not self.is_routed:
            return [self._flow(None)]
        if self.pattern is None:
            return [self._flow(topic) for topic in self._topics]
        if sample:
            return [self._flow(_SAMPLE)]
        return [self._flow(topic) for topic in sorted(set(existing)) if self.pattern.finds(topic)]

    def queries(self, existing: Iterable[str]) -> list[Flow]:
        """Return the flows that are queries: one for all tables, or those of the tables."""
        if self.shared_name is None:
            return self.flows(existing)
        flow = self._shared_flow(self.shared_name)
        if self._given.table is None:
            return [flow]
        # Only the process with the session can ask the catalog, so such a query begins again for a new topic.
        tables = {each.topics: str(each.table) for each in self.flows(existing)}
        return [replace(flow, tables=tables)] if tables else []

    def _shared_name(self) -> str | None:
        """Return the name of the query that writes all tables of this entry; None if each has its own.

        It is that of another query, and another checkpoint, once the entry chooses its topics or tables differently.
        """
        if not (self.is_routed and self._direct):
            return None
        if self._given.delivery_guarantee == Guarantee.AT_MOST_ONCE.value:
            return None  # a table that is left out would not be behind, and never get what it has refused
        if self._given.table is not None and columns_of_latest(self._source(None, "")):
            return None  # a topic without a schema yet has no table that can be created by name
        if self._given.table is not None and self._has_groups():
            return None  # such a query names its topics, and knows no pattern
        which = [self._given.table or self._given.path, self._given.topic_pattern, *sorted(self._topics)]
        return f"{SHARED}{hashlib.sha256(json.dumps(which).encode()).hexdigest()[:8]}"

    def _has_groups(self) -> bool:
        """Whether appIds or places of dead letters are made from groups of the pattern."""
        texts = (self._given.name, self._given.table_app_id, self._given.dead_letters)
        return any(key != TOPIC_KEY for text in texts for key in placeholders(text or ""))

    def _shared_flow(self, name: str) -> Flow:
        """Return the flow that is the query of all tables: paths and appId are those of a topic once it is known."""
        given, settings, flow = self._given, self._settings, self._flow(None)
        named = "" if given.name is None else "." + _NOT_IN_TEMPLATES.sub(lambda found: found[1] or "_", given.name)
        app_id = given.table_app_id or f"{settings.app_id}{named}"
        return replace(
            flow,
            name=name,
            app_id=app_id,
            source={**flow.source, "appId": app_id, "isolateTables": "true"},
            sink={**flow.sink, "appId": app_id},
            shared_by=None,
            is_shared=True,
            query_name=f"{settings.app_id}.{name}",
        )

    def reads(self, topic: str) -> bool:
        """Whether a topic of this name is read."""
        return topic in self._topics if self.pattern is None else self.pattern.finds(topic)

    def _check_placeholders(self) -> bool:
        """Check what stands in braces; return whether the place has any."""
        given, keys = self._given, self._names.keys
        for name in ("table", "path", "name", "table_app_id", "dead_letters"):
            for key in placeholders(getattr(given, name) or ""):
                if key not in keys:
                    known = ", ".join("{" + each + "}" for each in (TOPIC_KEY, *sorted(keys - {TOPIC_KEY})))
                    raise OptionError(f"{name}={getattr(given, name)!r} has {{{key}}}; known: {known}")
        routed = self._names.are_in(given.table or given.path or "")
        for name in ("name", "table_app_id") if routed else ():
            text = getattr(given, name)
            if text is not None and not self._names.are_in(text):
                raise OptionError(f"{name}={text!r} would be the same for all topics: add {{topic}}")
        if not routed and self._names.are_in(f"{given.name or ''}{given.table_app_id or ''}{given.dead_letters or ''}"):
            raise OptionError(
                "name, table_app_id and dead_letters have a topic only where table or path has: all topics go into one"
            )
        if routed and self.pattern is not None:
            _check_start(given)
        return routed

    def _flow(self, topic: str | None) -> Flow:
        given, settings = self._given, self._settings
        table = None if given.table is None else self._of(topic, given.table, _NOT_IN_TABLES)
        path = None if given.path is None else self._of(topic, given.path)
        name = self._of(topic, given.name) if given.name else topic or self.shared_name or _last_part(table, path)
        name = _NOT_IN_NAMES.sub("_", name)
        if name in ("", ".", ".."):
            raise OptionError(f"name={name!r} cannot be the name of a folder: set another")
        app_id = self._of(topic, given.table_app_id) if given.table_app_id else f"{settings.app_id}.{name}"
        checkpoint = f"{settings.checkpoint.rstrip('/')}/{self.shared_name or name}"
        in_spark = given.sql if not self._direct else None
        return Flow(
            name=name,
            topics=self._named(topic),
            table=table,
            path=path,
            app_id=app_id,
            checkpoint=checkpoint,
            direct=self._direct,
            why=self._why,
            source=self._source(topic, app_id),
            sink=self._sink(app_id, checkpoint, topic),
            sql=in_spark,
            transform=given.transform,
            compact_every=given.compact_every or 0,
            shared_by=self.shared_name,
            query_name=app_id,
        )

    def _of(self, topic: str | None, text: str, not_allowed: re.Pattern[str] | None = None) -> str:
        try:
            return text if topic is None else self._names.of(text, topic, not_allowed)
        except ValueError as error:
            raise OptionError(str(error)) from None

    def _named(self, topic: str | None) -> str:
        if topic is not None:
            return topic
        return ", ".join(self._topics) if self.pattern is None else f"topics with {self.pattern.text}"

    def _source(self, topic: str | None, app_id: str) -> dict[str, str]:
        given, settings = self._given, self._settings
        _check_own(given.source, _OWN_OF_SOURCE, "source")
        if topic is None and self.pattern is not None:
            which = {"subscribePattern": self.pattern.text}
        else:
            which = {"subscribe": topic or ",".join(self._topics)}
        chosen = {
            "startingOffsets": _start_of(topic, given.starting_offsets or EARLIEST),
            "columns": ",".join(names(given.columns)) or None,
            "valueFormat": given.value_format,
            "valueSchema": given.value_schema,
            "schemaEvolution": given.schema_evolution,
            "includeDeadLetters": "true" if given.dead_letters else None,
            HAND_OVER: RANGES if self._direct else None,
            "appId": app_id,
        }
        made = {**settings.client, **settings.storage_options, **which, **_set(chosen), **given.source}
        by_schema = {text for name, text in made.items() if name.lower() in _FORMATS} & _BY_SCHEMA
        return {**settings.registry_options, **made} if by_schema else made

    def _sink(self, app_id: str, checkpoint: str, topic: str | None) -> dict[str, str]:
        given, settings = self._given, self._settings
        _check_own(given.sink, _OWN_OF_SINK, "sink")
        letters = None if given.dead_letters is None else self._of(topic, given.dead_letters)
        merges = given.schema_evolution == ADD_COLUMNS if given.merge_schema is None else given.merge_schema
        chosen = {
            "appId": app_id,
            "checkpointLocation": checkpoint,
            "deliveryGuarantee": given.delivery_guarantee,
            "partitionBy": ",".join(names(given.partition_by)) or None,
            "mergeSchema": "true" if merges else None if given.merge_schema is None else "false",
            "deadLetters": letters,
            SQL: given.sql if self._direct else None,
            NOT_BESIDE: _app_ids(settings) if self._direct else None,
        }
        kafka = of_producer(settings.client) if letters and letters.startswith(TOPIC) else {}
        return {**settings.storage_options, **kafka, **_set(chosen), **given.sink}


def _start_of(topic: str | None, text: str) -> str:
    """Return the start of one topic, if the text is JSON with those of several."""
    try:
        each = json.loads(text)
    except ValueError:
        return text  # a word, or what the source refuses
    is_of_topic = isinstance(each, dict) and topic in each
    return json.dumps({topic: each[topic]}) if is_of_topic else text


def routes(settings: IngestSettings) -> list[Route]:
    """Return the tables of the settings. Raises OptionError for what cannot work, before a broker is asked."""
    return [Route(settings, number) for number in range(1, len(settings.tables) + 1)]


def flows_of_new(
    made: Sequence[Route], existing: Sequence[str], known: Collection[str]
) -> tuple[list[Flow], Sequence[str]]:
    """Return the flows, and their topics, without new topics that can have no table, or only that of another.

    The log warns of each once. Topics that are ``known`` take precedence. A query with a pattern may still read a topic
    that is left out; ``notBeside`` keeps its rows out of another topic's table.

    Raises:
        OptionError: if one has the table and the appId of a topic of another entry: the sinks cannot tell these apart.
    """
    accepted, kept = _Accepted(made), []
    accepted.add([flow for route in made if not route.finds_topics for flow in route.flows([])])
    for topic in sorted(set(existing), key=lambda each: (each not in known, each)):
        try:
            accepted.add([flow for route in made if route.finds_topics for flow in route.flows([topic])])
            kept.append(topic)
        except _OneTableError:
            raise
        except OptionError as error:
            _warn_once(topic, str(error))
    return accepted.flows, kept


@cache
def _warn_once(topic: str, why: str) -> None:
    _log.warning("topic %s is left out: %s", topic, why)


def flows(made: Sequence[Route], existing: Iterable[str]) -> list[Flow]:
    """Return all flows, given the topics that exist. Raises OptionError if two share a name, an appId, or a table."""
    accepted, topics = _Accepted(made), list(existing)
    accepted.add([flow for route in made for flow in route.flows(topics)])
    return accepted.flows


class _OneTableError(OptionError):
    """Topics of two entries have one table and one appId."""


class _Accepted:
    """Flows that can be side by side."""

    def __init__(self, made: Sequence[Route]) -> None:
        self.flows: list[Flow] = []
        self._made = made
        self._having: dict[tuple[str, str], Flow] = {}
        """The flows by what each has: a name, an appId, a table, and a place of dead letters."""

    def add(self, new: Sequence[Flow]) -> None:
        """Add all of these flows, or none. Raises OptionError if two share what only one may have."""
        having = ChainMap[tuple[str, str], Flow]({}, self._having)
        for flow in new:
            place = str(TableName.parse(flow.table)).lower() if flow.table else _real(flow.path or "")
            _check_is_alone(flow, place, having)
            _check_checkpoint(flow)
            _check_dead_letters(flow, place, having, self._made)
        self._having.update(having.maps[0])
        self.flows += new


def _check_is_alone(flow: Flow, place: str, having: MutableMapping[tuple[str, str], Flow]) -> None:
    """Reject a name, an appId and a table that another flow has. Raises OptionError."""
    for kind, own, why in (
        ("name", flow.name, f"have the name {flow.name!r}, and so one appId: set another name for one of them"),
        ("appId", flow.app_id, f"have the appId {flow.app_id!r}: set another table_app_id for one"),
        ("table", place, "write one table: name the topics in one entry, or choose another table for one"),
    ):
        other = having.setdefault((kind, own), flow)
        if other is not flow:
            same_table = having.get(("table", place)) is other and other.app_id == flow.app_id
            is_one = same_table and other.query != flow.query
            raise (_OneTableError if is_one else OptionError)(f"{flow} and {other} {why}")


def _check_dead_letters(
    flow: Flow, place: str, having: MutableMapping[tuple[str, str], Flow], made: Iterable[Route]
) -> None:
    """Reject dead letters in a topic that is read, which would be made forever, and in a table of rows.

    Raises:
        OptionError: as said.
    """
    kind, _, letters = flow.sink.get("deadLetters", "").partition(":")
    reading = next((route for route in made if f"{kind}:" == TOPIC and route.reads(letters)), None)
    if reading is not None:
        by = letters if reading.pattern is None else f"topics with {reading.pattern.text}"
        raise OptionError(
            f"{flow}: its dead letters go to the topic {letters}, which is read itself: {by}. Choose another topic, "
            "or dead_letters = table:<path>"
        )
    rows, giving = None, having.get(("letters", place))
    if f"{kind}:" == TABLE:
        having["letters", _real(letters)] = flow
        rows = having.get(("table", _real(letters)))
    for one, other in ((flow, rows), (giving, flow)):
        if one is not None and other is not None:
            raise OptionError(f"{one}: its dead letters go to the table of {other}: choose a table of their own")


def _app_ids(settings: IngestSettings) -> str:
    """Return a regular expression that matches the appIds of the tables of an ingestion, but those of any name."""
    templates = {f"{settings.app_id}.{{name}}", *(each.table_app_id for each in settings.tables if each.table_app_id)}
    texts = (re.split(r"\{[^{}]*\}", template) for template in sorted(templates))
    return "|".join(".*".join(map(re.escape, parts)) for parts in texts if any(parts))


def _real(path: str) -> str:
    """Return what identifies a place, also if it is reached by way of symbolic links."""
    place = Location.parse(path)
    return os.path.realpath(place.text) if place.is_local else place.text


def _check_checkpoint(flow: Flow) -> None:
    """Reject a checkpoint in its table's folder where VACUUM would delete it. Raises OptionError."""
    if flow.path is None:
        return
    table, checkpoint = _real(flow.path), _real(flow.checkpoint)
    within = checkpoint.removeprefix(table) if f"{checkpoint}/".startswith(f"{table}/") else None
    if within is not None and not within.startswith(("/_", "/.")):
        raise OptionError(
            f"{flow}: its checkpoint {flow.checkpoint} is among the table's files, and VACUUM would delete it: set "
            "checkpoint to a folder outside of the tables"
        )


def _pattern(text: str) -> TopicPattern:
    try:
        return pattern(text)
    except (PatternError, ValueError) as error:
        raise OptionError(f"topic_pattern={text!r}: {error}") from None


def _last_part(table: str | None, path: str | None) -> str:
    return TableName.parse(table).parts[-1] if table is not None else (path or "").rstrip("/").rpartition("/")[2]


def _set(chosen: Mapping[str, str | None]) -> dict[str, str]:
    return {name: value for name, value in chosen.items() if value is not None}


def _check_own(given: Mapping[str, str], own: Mapping[str, str], where: str) -> None:
    for name in given:
        found = next((each for each in own if each.lower() == name.lower()), None)
        if found is not None:
            raise OptionError(f"{found} does not belong into {where}: {own[found]}")
        if name.lower().startswith(KAFKA_PREFIX):
            raise OptionError(f"{name} does not belong into {where}: set it in kafka, for all tables")


def _check_start(given: IngestTable) -> None:
    """Reject a start that would lose records of topics that are created while the ingestion is stopped, or starts."""
    other = next((name for name in given.source if name.lower().startswith("starting")), None)
    if given.starting_offsets not in (None, EARLIEST) or other is not None:
        raise OptionError(
            f"{other or 'starting_offsets'} cannot be combined with topic_pattern and a table for each topic: a topic "
            "that is created later must be read from its first record. Leave it out (earliest), or name the topics"
        )


def _mode(given: IngestTable) -> tuple[bool, str]:
    """Return whether the sink reads the records, and why."""
    against = None
    if given.direct is False:
        against = "direct is set to false"
    elif given.transform is not None:
        against = "transform needs the records in Spark's rows"
    if against is not None and given.schema_evolution == ADD_COLUMNS:
        raise OptionError(
            f"schema_evolution is {ADD_COLUMNS}, for which the sink must read the records, but {against}: through "
            f"Spark the columns of a query are fixed. Set schema_evolution to {RESTART}"
        )
    if against is None:
        return True, NOTHING_FORBIDS if given.direct is None else "direct is set to true"
    if given.direct:
        raise OptionError(f"direct is set to true, but {against}: leave direct out")
    return False, against


def _is_named_after_topic(source: Mapping[str, str]) -> bool:
    """Return whether a schema is looked up by the topic's name, which is not known before there is one."""
    named = {name.lower() for name in source}
    return any(f"{column}subject" not in named for column in columns_of_latest(source))


def check_flow(flow: Flow) -> None:
    """Check the options of a flow as its query will. Raises OptionError for what cannot work."""
    source = resolved(OPTIONS, flow.source)
    options = checked(SourceOptions.read, source)
    options.for_stream()
    if flow.table is not None:
        TableName.parse(flow.table)
    place = {PATH: flow.path} if flow.path is not None else {TABLE_NAME: flow.table or ""}
    sink = checked(SinkOptions.read_with_name, {**flow.sink, **place})
    rows = options.rows.spark_schema()
    if flow.direct:
        found = direct_source(flow, source)
        stream_sink(sink, rows, source=found)
        rows = rows if found is None else found.schema
    if flow.sql is None and flow.transform is None:  # else the columns are known when Spark runs
        _check_partitions(flow, sink, rows)


def _check_partitions(flow: Flow, sink: SinkOptions, rows: StructType) -> None:
    try:
        check_partition_columns(sink.partition_by, rows_schema(rows))
    except SchemaError as error:
        given = "" if SQL not in flow.sink else "; these are what the SELECT gives: add the column to it"
        raise OptionError(f"{str(error).replace('option partitionBy', 'partition_by')}{given}") from None


def direct_source(flow: Flow, source: Mapping[str, str]) -> DirectSource | None:
    """Return the source as the sink finds it. Raises OptionError if the workers cannot run its SELECT."""
    hand_over, given = HandOver.of(source), {name.lower(): text for name, text in source.items()}
    secrets = {SOURCE_PREFIX + name: given[name] for name in hand_over.secrets}
    try:
        return find_source(FORMAT, hand_over.schema(), {**flow.sink, **secrets})
    except OptionError as error:
        if SQL not in flow.sink:
            raise
        said = str(error)
        end = "" if said.endswith("?") else "."
        raise OptionError(
            f"{said}{end} For SQL that only Spark has, set direct to false: Spark runs the SELECT"
        ) from None

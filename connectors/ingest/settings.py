"""The settings of an ingestion: which topics go into which tables, and how. Equal in Python and in TOML.

An entry of a table that is not set has the value of the ingestion's own entry of that name, and else the default of the
source or the sink: a default is written there only. What belongs together is checked here; the values of options are
checked where they are declared, by the source and the sink (`connectors.ingest.routing`).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypedDict

from pyspark.sql import DataFrame

from sparkonce.connectors.schema_registry.settings import PREFIX as REGISTRY_PREFIX
from sparkonce.options import KAFKA_PREFIX, STORAGE_PREFIX, OptionError

AVAILABLE_NOW, ONCE = "availableNow", "once"
DEFAULT_TRIGGER = "10 seconds"
DEFAULT_TOPIC_INTERVAL_S = 30.0
DEFAULT_STOP_TIMEOUT_S = 60.0
LOOPBACK = "127.0.0.1"

Transform = Callable[[DataFrame], DataFrame]

_INTERVAL = re.compile(r"(?i)\s*\d+\s+(millisecond|second|minute|hour|day)s?\s*")
_APP_ID = re.compile(r"[A-Za-z0-9._-]+")
_OF_A_TABLE = ("topics", "topic_pattern", "table", "path", "name", "table_app_id")
"""Entries that tables do not inherit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestTable:
    """Which topics go into which table, and how; None for what the ingestion, or else the option, has as a default.

    ``{topic}`` in ``table`` or ``path`` makes a table for each topic.
    """

    topics: Sequence[str] | str | None = None
    """Topics by name, or several separated by commas."""
    topic_pattern: str | None = None
    """Topics by a regular expression in Java's syntax, which is found in their names."""
    table: str | None = None
    """The name of the table in a catalog of Spark."""
    path: str | None = None
    """The path or URI of the table."""
    name: str | None = None
    """What appId and checkpoint are named after; by default the topic, or the last part of the table's name or path."""
    table_app_id: str | None = None
    """The whole appId, if it is to stay as it was although the table's path or name changes."""
    delivery_guarantee: str | None = None
    """exactly-once (the default), at-least-once or at-most-once."""
    starting_offsets: str | None = None
    """Where a table without offsets begins: earliest (the default), latest, or JSON."""
    columns: Sequence[str] | str | None = None
    """The columns to read, such as ``value,offset``."""
    value_format: str | None = None
    """What values hold: binary, json, avro, protobuf or json-schema."""
    value_schema: str | None = None
    """The fields of the values with json, and else the schema that they are read as."""
    schema_evolution: str | None = None
    """With a registry's schemas: none; restart: a query begins again with the newer version of its subject; or
    add-columns: it reads on with that, and adds its columns to the table."""
    sql: str | None = None
    """One SELECT over the decoded records, the table ``records``."""
    transform: Transform | None = None
    """Any change of the DataFrame; its rows pass through Spark. Only in Python."""
    partition_by: Sequence[str] | str | None = None
    """The partition columns of a new table."""
    merge_schema: bool | None = None
    """Whether new columns are added to the table; by default only with add-columns."""
    dead_letters: str | None = None
    """``table:<path>`` or ``topic:<name>``, for values that do not parse; ``{topic}`` is allowed."""
    compact_every: int | None = None
    """Small files are merged after this many batches; 0 or None for never."""
    direct: bool | None = None
    """Whether the sink reads the records; by default, where nothing forbids it. The log says which, and why."""
    source: Mapping[str, str] = field(default_factory=dict, repr=False)
    """More options of the source, by their own names."""
    sink: Mapping[str, str] = field(default_factory=dict, repr=False)
    """More options of the sink, by their own names."""

    def inherit(self, defaults: IngestTable) -> IngestTable:
        """Return it with what is not set as in ``defaults``."""
        more: dict[str, Any] = {
            each.name: getattr(defaults, each.name)
            for each in fields(self)
            if each.name not in _OF_A_TABLE and getattr(self, each.name) is None
        }
        return replace(self, **more, source={**defaults.source, **self.source}, sink={**defaults.sink, **self.sink})


class TableEntries(TypedDict, total=False):
    """The fields of `IngestTable` as keyword arguments."""

    topics: Sequence[str] | str | None
    topic_pattern: str | None
    table: str | None
    path: str | None
    name: str | None
    table_app_id: str | None
    delivery_guarantee: str | None
    starting_offsets: str | None
    columns: Sequence[str] | str | None
    value_format: str | None
    value_schema: str | None
    schema_evolution: str | None
    sql: str | None
    transform: Transform | None
    partition_by: Sequence[str] | str | None
    merge_schema: bool | None
    dead_letters: str | None
    compact_every: int | None
    direct: bool | None
    source: Mapping[str, str]
    sink: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestSettings:
    """The whole of an ingestion; ``tables`` have inherited what they lack."""

    app_id: str
    """Its name; a table's appId is this, a dot and the table's ``name``, if it has no ``table_app_id``."""
    checkpoint: str
    """The folder of the tables' checkpoints."""
    kafka: Mapping[str, str] = field(repr=False)
    """Settings of Kafka's clients, by Kafka's names."""
    tables: tuple[IngestTable, ...]
    trigger: str = DEFAULT_TRIGGER
    """An interval such as ``10 seconds``, ``availableNow`` or ``once``."""
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Settings of the object store that tables and checkpoints are in, as delta-rs takes them."""
    schema_registry: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Settings of the schema registry, by the names of the source's options behind ``schemaRegistry.``."""
    metrics_port: int | None = None
    metrics_address: str = LOOPBACK
    topic_interval_s: float = DEFAULT_TOPIC_INTERVAL_S
    """How often new topics are looked for."""
    stop_timeout_s: float = DEFAULT_STOP_TIMEOUT_S
    """How long a batch has to complete when the ingestion is stopped."""

    @classmethod
    def of(cls, defaults: IngestTable, tables: Iterable[IngestTable], **whole: Any) -> IngestSettings:
        """Put it together from the ingestion's own entries and its tables; without any, the former are the table.

        Raises:
            OptionError: for entries that do not go together; the message begins with the table.
        """
        given = tuple(tables)
        if given:
            wrong = next((name for name in _OF_A_TABLE if getattr(defaults, name) is not None), None)
            if wrong is not None:
                raise OptionError(f"{wrong} is of one table, and there are several: set it in each of the tables")
        settings = cls(tables=tuple(each.inherit(defaults) for each in given) or (defaults,), **whole)
        settings.check()
        return settings

    @property
    def goes_on(self) -> bool:
        """Whether it runs until it is stopped."""
        return self.trigger not in (AVAILABLE_NOW, ONCE)

    @property
    def client(self) -> dict[str, str]:
        """The settings of Kafka's clients as options."""
        names = {name: name if name.startswith(KAFKA_PREFIX) else KAFKA_PREFIX + name for name in self.kafka}
        return {names[name]: value for name, value in self.kafka.items()}

    @property
    def storage_options(self) -> dict[str, str]:
        """The settings of the object store as options."""
        return {STORAGE_PREFIX + name: value for name, value in self.storage.items()}

    @property
    def registry_options(self) -> dict[str, str]:
        """The settings of the schema registry as options."""
        return {
            REGISTRY_PREFIX + name.removeprefix(REGISTRY_PREFIX): text for name, text in self.schema_registry.items()
        }

    def check(self) -> None:
        """Check what needs no broker. Raises OptionError for what cannot work."""
        for name in ("app_id", "checkpoint"):
            if not getattr(self, name).strip():
                raise OptionError(f"{name} is empty: " + _WHY[name])
        if not _APP_ID.fullmatch(self.app_id):
            raise OptionError(f"app_id={self.app_id!r}: only letters, digits, '.', '_' and '-' are allowed")
        if f"{KAFKA_PREFIX}bootstrap.servers" not in self.client:
            raise OptionError("kafka has no bootstrap.servers: name the brokers, as host:port")
        check_trigger(self.trigger)
        for name in ("topic_interval_s", "stop_timeout_s"):
            if getattr(self, name) < 0:
                raise OptionError(f"{name.removesuffix('_s')} is below zero")
        for number, table in enumerate(self.tables, 1):
            try:
                _check_table(table)
            except OptionError as error:
                raise OptionError(f"{self.where(number)}{error}") from None

    def where(self, number: int) -> str:
        """Return the prefix of messages about a table: which one it is, if there are several."""
        return f"tables, number {number}: " if len(self.tables) > 1 else ""


_WHY = {
    "app_id": "name the ingestion; tables keep its offsets under this name, so never change it",
    "checkpoint": "name the folder in which the checkpoint of each table is to be",
}


def trigger_arguments(trigger: str) -> dict[str, Any]:
    """Return the keyword arguments of ``DataStreamWriter.trigger``."""
    return {"processingTime": trigger} if trigger not in (AVAILABLE_NOW, ONCE) else {trigger: True}


def check_trigger(trigger: str) -> None:
    """Check a trigger. Raises OptionError if it is none."""
    if trigger in (AVAILABLE_NOW, ONCE) or _INTERVAL.fullmatch(trigger):
        return
    near = difflib.get_close_matches(trigger.replace("-", "").lower(), [AVAILABLE_NOW.lower(), ONCE], n=1, cutoff=0.7)
    hint = f"; did you mean {AVAILABLE_NOW if near[0] != ONCE else ONCE!r}?" if near else ""
    raise OptionError(
        f"trigger={trigger!r}: expected an interval such as '10 seconds', {AVAILABLE_NOW!r} (what is there now, then "
        f"stop) or {ONCE!r} (the same in one batch){hint}"
    )


def names(given: Sequence[str] | str | None) -> tuple[str, ...]:
    """Return names that are given one by one or separated by commas."""
    parts = given.split(",") if isinstance(given, str) else given or ()
    return tuple(part.strip() for part in parts if part.strip())


def _check_table(table: IngestTable) -> None:
    _one_of(table, "topics", "topic_pattern", "name the topics, or a pattern that is found in their names")
    _one_of(table, "table", "path", "name the table in Spark's catalog, or its path")
    if table.topics is not None and not names(table.topics):
        raise OptionError("topics is empty: name at least one topic")
    if table.compact_every is not None and table.compact_every < 0:
        raise OptionError(f"compact_every={table.compact_every}: expected a number of batches, or 0 for never")
    if table.sql is not None and table.transform is not None:
        raise OptionError("sql and transform exclude each other: put the SELECT into transform, or leave one out")
    if table.direct and table.transform is not None:
        raise OptionError("direct=True and transform exclude each other: transform needs the records in Spark's rows")


def _one_of(table: IngestTable, one: str, other: str, what: str) -> None:
    given = [name for name in (one, other) if getattr(table, name) is not None]
    if len(given) == 2:
        raise OptionError(f"{one} and {other} exclude each other: leave one of them out")
    if not given:
        raise OptionError(f"{one} or {other} is missing: {what}")

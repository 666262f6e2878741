"""The options of the format ``kafka_once`` as a sink: those of Spark's Kafka sink, and ours, declared once.

Streams and batches accept different ones: only a stream has offsets, so only a stream can deliver exactly once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sparkonce.connectors.kafka_client.settings import PREFIX, ClientSettings
from sparkonce.connectors.kafka_sink.settings import ProducerSettings, read_producer
from sparkonce.connectors.settings.options import (
    STORAGE_PREFIX,
    Option,
    OptionError,
    OptionSet,
    Scope,
    boolean,
    one_of,
    storage_options,
)
from sparkonce.connectors.settings.setting_table import FORMAT
from sparkonce.connectors.sinks.dead_letter_place import DeadLetterPlace, topic_name
from sparkonce.exactly_once.guarantee import Guarantee
from sparkonce.offset_store import DELTA, GROUP, check_spec
from sparkonce.offset_store.locations import Location

DEFAULT_DECISION_TOPIC = "sparkonce-decisions"

_GUARANTEES = tuple(guarantee.value for guarantee in Guarantee)


def _named(text: str) -> str:
    if not text.strip():
        raise ValueError("it is empty; give a name that stays the same over restarts")
    return text


_WHERE, _HOW, _TWICE = "Where rows go", "What is written", "Exactly once"
_COMMON = (
    Option(
        "topic",
        "the topic that all rows go to. Without it the column `topic` names one for each row",
        topic_name,
        value="topic",
        spark=True,
        group=_WHERE,
    ),
    Option(
        "deliveryGuarantee",
        "what a crash may do to the rows: at-most-once, at-least-once or exactly-once. A batch (`df.write`) is "
        "at-least-once, and takes no other",
        one_of(*_GUARANTEES),
        default_text=f"{Guarantee.EXACTLY_ONCE.value}; batch: {Guarantee.AT_LEAST_ONCE.value}",
        group=_TWICE,
    ),
    Option(
        "appId",
        "a name for this pipeline, stable over restarts: decisions and offsets are kept under it. A batch needs none",
        _named,
        value="name",
        default_text="required for streams",
        group=_TWICE,
    ),
    Option(
        "includeHeaders",
        "whether a column `headers` is written, if there is one. (Spark's sink writes it always.)",
        boolean,
        True,
        group=_HOW,
    ),
)
_STREAM_ONLY = (
    Option(
        "checkpointLocation",
        "Spark's checkpoint directory, as an option of the query: set by Spark configuration alone it does not reach "
        "the sink, which reads each batch's offsets from it",
        _named,
        value="path",
        default_text="required",
        scope=Scope.STREAM,
        spark=True,
        group=_TWICE,
    ),
    Option(
        "offsetStore",
        "where the source's offsets are kept: `group:<id>`, a Kafka consumer group, or `delta:<path>`, a Delta table "
        "of offsets. With exactly-once it is a group",
        check_spec,
        value="group:<id>|delta:<path>",
        default_text="group:<appId>",
        scope=Scope.STREAM,
        group=_TWICE,
    ),
    Option(
        "atomicVisibility",
        "exactly-once: readers see all rows of a micro-batch at once, not task by task. They pass "
        "through files beside the checkpoint and one producer on the driver, which costs speed",
        boolean,
        False,
        scope=Scope.STREAM,
        group=_TWICE,
    ),
    Option(
        "decisionTopic",
        "exactly-once: the topic that says which transactions belong to the result; it is made if it is missing. The "
        "same for all restarts of a pipeline",
        topic_name,
        DEFAULT_DECISION_TOPIC,
        value="topic",
        scope=Scope.STREAM,
        group=_TWICE,
    ),
    Option(
        "deadLetters",
        "where rows go whose column `_dead_letter` is not null: `topic:<name>` or `table:<path>`, a Delta table",
        DeadLetterPlace.parse,
        value="topic:<name>|table:<path>",
        scope=Scope.STREAM,
        group=_WHERE,
    ),
)

_ELSEWHERE = {
    "path": "has no use: start() and save() take no path here, and toTable (which passes the table's folder) makes a "
    "table that nothing can read; name the topic with the option topic",
    "spark.kafka.*": "is of Spark's configuration, for delegation tokens, which are not supported: log in with "
    "kafka.sasl.mechanism SCRAM-SHA-512, PLAIN or OAUTHBEARER",
    "partitionBy": "is of tables; a column partition says which partition of the topic a row goes to",
}

OPTIONS = OptionSet(
    FORMAT,
    (*_COMMON, *_STREAM_ONLY),
    (STORAGE_PREFIX, PREFIX),
    ignored=("queryname",),
    elsewhere=_ELSEWHERE,
    reference="kafka-sink",
)
"""The options of ``writeStream``."""

BATCH_OPTIONS = OptionSet(
    FORMAT,
    _COMMON,
    (PREFIX,),
    elsewhere={
        **_ELSEWHERE,
        **{
            option.name: "is for writeStream: a batch (df.write) has no offsets to keep; leave it out"
            for option in _STREAM_ONLY
        },
    },
    reference="kafka-sink",
)
"""The options of ``df.write``."""


@dataclass(frozen=True, slots=True)
class KafkaSinkOptions:
    """The options of one streaming query, read and checked."""

    client: ClientSettings = field(repr=False)
    producer: ProducerSettings
    topic: str | None
    """The topic of all rows; None: the column `topic` has it."""
    guarantee: Guarantee
    app_id: str
    checkpoint: str
    offset_store: str
    """``group:<id>``, or ``delta:<path>`` with the two weaker guarantees."""
    include_headers: bool
    atomic_visibility: bool
    decision_topic: str
    dead_letters: DeadLetterPlace | None = None
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    """May hold keys to a store: never shown."""

    @property
    def group(self) -> str | None:
        """The consumer group that offsets are kept in, if they are in one."""
        return self.offset_store.removeprefix(GROUP) if self.offset_store.startswith(GROUP) else None

    @classmethod
    def read(cls, given: Mapping[str, str]) -> KafkaSinkOptions:
        """Read and check the options of ``writeStream``.

        Raises:
            OptionError: for an option that is unknown, missing, not readable or at odds with another.
        """
        values = OPTIONS.read(given)
        guarantee = Guarantee(values["deliveryGuarantee"] or Guarantee.EXACTLY_ONCE.value)
        _check_required(values)
        offset_store = values["offsetStore"] or GROUP + values["appId"]
        _check_guarantee(guarantee, offset_store, atomic_visibility=values["atomicVisibility"])
        _check_topics(values)
        _check_storage(given, offset_store, values["deadLetters"])
        client, producer = read_producer(given, guarantee)
        return cls(
            client=client,
            producer=producer,
            topic=values["topic"],
            guarantee=guarantee,
            app_id=values["appId"],
            checkpoint=values["checkpointLocation"],
            offset_store=offset_store,
            include_headers=values["includeHeaders"],
            atomic_visibility=values["atomicVisibility"],
            decision_topic=values["decisionTopic"],
            dead_letters=values["deadLetters"],
            storage_options=storage_options(given),
        )


@dataclass(frozen=True, slots=True)
class KafkaBatchOptions:
    """The options of one ``df.write``, read and checked."""

    client: ClientSettings = field(repr=False)
    producer: ProducerSettings
    topic: str | None
    include_headers: bool
    app_id: str = ""
    """Only a name for crash points: nothing is kept under it."""

    @classmethod
    def read(cls, given: Mapping[str, str]) -> KafkaBatchOptions:
        """Read and check the options of ``df.write``.

        Raises:
            OptionError: for an option that is unknown, not readable, for streams only or at odds with another.
        """
        values = BATCH_OPTIONS.read(given)
        guarantee = values["deliveryGuarantee"]
        if guarantee not in (None, Guarantee.AT_LEAST_ONCE.value):
            raise OptionError(
                f"{FORMAT}: option deliveryGuarantee={guarantee} is for writeStream: a batch (df.write) has no offsets "
                "that would tell its rows from those of an earlier attempt, and Spark runs failed tasks again, so it "
                "is at-least-once. Leave the option out, or use readStream and writeStream with "
                "trigger(availableNow=True)"
            )
        client, producer = read_producer(given, Guarantee.AT_LEAST_ONCE)
        return cls(client, producer, values["topic"], values["includeHeaders"], values["appId"] or "")


def _check_required(values: Mapping[str, Any]) -> None:
    for name in ("appId", "checkpointLocation"):
        if values[name] is None:
            doc = next(option.doc for option in OPTIONS.options if option.name == name)
            raise OptionError(f"{FORMAT}: option {name} is required: {doc}")


def _check_guarantee(guarantee: Guarantee, offset_store: str, *, atomic_visibility: bool) -> None:
    if guarantee is Guarantee.EXACTLY_ONCE:
        if offset_store.startswith(DELTA):
            raise OptionError(
                f"{FORMAT}: option offsetStore={offset_store!r} cannot be had with deliveryGuarantee=exactly-once: "
                "offsets and rows become visible in one transaction of Kafka's, and only the offsets of a consumer "
                "group can be part of it. Use offsetStore=group:<id>, or leave it out for group:<appId>"
            )
    elif atomic_visibility:
        raise OptionError(
            f"{FORMAT}: option atomicVisibility=true needs deliveryGuarantee=exactly-once: with {guarantee.value} rows "
            "are visible as soon as they are written"
        )


def _check_storage(given: Mapping[str, str], offset_store: str, dead_letters: DeadLetterPlace | None) -> None:
    """Refuse options for a Delta table where there is none: they would be dropped silently."""
    named = sorted(key for key in given if key.lower().startswith(STORAGE_PREFIX))
    has_table = offset_store.startswith(DELTA) or (dead_letters is not None and dead_letters.table is not None)
    if named and not has_table:
        raise OptionError(
            f"{FORMAT}: option {named[0]} is for offsetStore=delta:<path> or deadLetters=table:<path>, and offsetStore "
            f"is {offset_store!r}, deadLetters {str(dead_letters) if dead_letters else 'not set'}: the sink uses no "
            "table for anything else. Leave it out, or set it on the source"
        )


def _check_topics(values: Mapping[str, Any]) -> None:
    """Rows, dead letters and decisions are read by different people: none may be in the place of another."""
    dead_letters: DeadLetterPlace | None = values["deadLetters"]
    if dead_letters is not None and dead_letters.table is not None and values["offsetStore"] is not None:
        spec: str = values["offsetStore"]
        if spec.startswith(DELTA) and Location.parse(spec.removeprefix(DELTA)) == dead_letters.table:
            raise OptionError(
                f"{FORMAT}: options offsetStore and deadLetters both name the table {dead_letters.table}, which keeps "
                "the offsets of the dead letters in its own commits; those of the rows need another store"
            )
    used = {"topic": values["topic"], "deadLetters": dead_letters and dead_letters.topic}
    if used["topic"] is not None and used["topic"] == used["deadLetters"]:
        raise OptionError(
            f"{FORMAT}: options topic and deadLetters both name the topic {used['topic']!r}: rejected rows would be "
            "read as results; give them a topic of their own"
        )
    for name, topic in used.items():
        if topic is not None and topic == values["decisionTopic"]:
            raise OptionError(
                f"{FORMAT}: options {name} and decisionTopic both name the topic {topic!r}, which is compacted and "
                "keeps only decisions; name another one"
            )

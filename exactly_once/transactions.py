"""A batch in Kafka transactions, and the decision to commit or abort them.

Theory of operation. Each task writes its rows in its own transaction and leaves it open. The driver then writes
the decision: one record, in one transaction together with the offsets of the batch. From then on the batch
counts as written, and each of the listed transactions must be committed: by this driver, or after a crash by the next
one. A transaction that no decision lists must be aborted.

Only the last decision of an application can be unfinished, since the previous one is finished before the next is made.
So the last one has everything that a recovery needs, and the log of decisions may be compacted by application.

A transaction is identified by transactional id, producer id and epoch. The ids in the last decision are not used
otherwise (see `connectors.kafka_sink.tasks`), so if the coordinator shows another epoch than the decision, the
transaction is gone: it timed out, or was fenced manually. Then, if none of the others is committed yet, the decision is
undone as it was made: by one record, with the previous offsets. If some are, rows are missing that cannot be written
again without duplicating others, and a person must choose.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any
from urllib.parse import quote, unquote

from sparkonce.offset_store.fingerprint import RING, Fingerprint
from sparkonce.offset_store.offsets import TopicPartition
from sparkonce.offset_store.record import BatchRecord, CommittedBatch, PartitionKey, Writes
from sparkonce.words import counted

FORMAT_VERSION = 1
MARK = "sparkonce"
FINISHED = "finished"
KEPT_QUERIES = 50
"""For how many queries, the most recent ones, a decision repeats the last batch."""
KEPT_DECISIONS = 20
"""How many earlier decisions a reader of the log keeps, for messages and to see which commits have landed."""


class DecisionFormatError(ValueError):
    """A record under an application's key is not one of our decisions; the message quotes it."""


@dataclass(frozen=True, slots=True)
class PreparedTransaction:
    """One task's open transaction, and the number of rows in it."""

    transactional_id: str
    producer_id: int
    epoch: int
    rows: int


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision about one batch. ``number`` counts an application's decisions, from 1."""

    number: int
    record: BatchRecord
    transactions: tuple[PreparedTransaction, ...]
    queries: Mapping[str, int]
    """The last batch of each query, including this one."""
    group_id: str
    at_ms: int
    offsets: Mapping[PartitionKey, int] = field(default_factory=dict)
    """The next offset of each partition that the application has ever read. A group forgets offsets that were not
    committed for a week (``offsets.retention.minutes``), and a new checkpoint would not begin at them."""
    before: int | None = None
    """The last batch of this query before this decision."""
    fingerprints: Mapping[str, Mapping[int, Fingerprint]] = field(default_factory=dict)
    """Fingerprints of batches of each query: the last `RING` of this query, the last one of others."""
    undone: bool = False
    """Whether this undoes the previous decision, whose transactions were gone."""
    topics: tuple[str, ...] = ()
    """The topics that the query's options name, for people to read; rows may name others."""

    @property
    def rows(self) -> int:
        """How many rows the batch has."""
        return sum(transaction.rows for transaction in self.transactions)

    def undoing(self, at_ms: int) -> Decision:
        """Return the decision that undoes this one: its query is back at its previous batch."""
        queries = {query: batch for query, batch in self.queries.items() if query != self.record.query_id}
        if self.before is not None:
            queries[self.record.query_id] = self.before
        own = self.record.query_id
        fingerprints = {
            query: {batch: each for batch, each in batches.items() if (query, batch) != (own, self.record.batch_id)}
            for query, batches in self.fingerprints.items()
        }
        starts = {key: extent.follows for key, extent in self.record.moved.items()}
        return replace(
            self,
            number=self.number + 1,
            transactions=(),
            queries=queries,
            offsets={**self.offsets, **starts},
            at_ms=at_ms,
            before=None,
            fingerprints={query: batches for query, batches in fingerprints.items() if batches},
            undone=True,
        )

    def as_committed(self) -> CommittedBatch:
        """Return this decision as a commit of an offset store."""
        return CommittedBatch(self.number, self.at_ms, Writes.ROWS | Writes.OFFSETS, self.record)

    def to_json(self) -> str:
        """Return the text of the record's value."""
        document: dict[str, Any] = {
            MARK: FORMAT_VERSION,
            "number": self.number,
            "batch": self.record.to_commit_info(Writes.ROWS | Writes.OFFSETS),
            "transactions": [
                [each.transactional_id, each.producer_id, each.epoch, each.rows] for each in self.transactions
            ],
            "queries": dict(self.queries),
            "group": self.group_id,
            "atMs": self.at_ms,
            "offsets": _nested(self.offsets),
            "before": self.before,
            "fingerprints": {
                query: {str(batch): each.to_int() for batch, each in batches.items()}
                for query, batches in self.fingerprints.items()
            },
            "undone": self.undone,
            "topics": self.topics,
        }
        return json.dumps(document, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Decision:
        """Parse the result of ``to_json``.

        Raises:
            DecisionFormatError: if the text is invalid.
        """
        try:
            document = json.loads(text)
            if document[MARK] != FORMAT_VERSION:
                raise DecisionFormatError(
                    f"this decision has format {document[MARK]!r}; this version of sparkonce reads {FORMAT_VERSION}"
                )
            return cls(
                number=int(document["number"]),
                record=BatchRecord.from_commit_info(document["batch"]),
                transactions=tuple(
                    PreparedTransaction(str(name), int(producer_id), int(epoch), int(rows))
                    for name, producer_id, epoch, rows in document["transactions"]
                ),
                queries={str(query): int(batch) for query, batch in document["queries"].items()},
                group_id=str(document["group"]),
                at_ms=int(document["atMs"]),
                offsets=_flat(document["offsets"]),
                before=None if document["before"] is None else int(document["before"]),
                fingerprints={
                    str(query): {int(batch): Fingerprint.from_int(int(each)) for batch, each in batches.items()}
                    for query, batches in document.get("fingerprints", {}).items()
                },
                undone=bool(document["undone"]),
                topics=tuple(map(str, document.get("topics", ()))),  # earlier versions have none
            )
        except DecisionFormatError:
            raise
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DecisionFormatError(f"not a decision of sparkonce: {text[:200]!r} ({error!r})") from error


def following(
    last: Decision | None,
    record: BatchRecord,
    transactions: Iterable[PreparedTransaction],
    group_id: str,
    at_ms: int,
    topics: tuple[str, ...] = (),
) -> Decision:
    """Return the decision about a batch that follows ``last``, or is the first."""
    known = {} if last is None else dict(last.queries)
    before = known.pop(record.query_id, None)
    queries = {**dict(list(known.items())[-(KEPT_QUERIES - 1) :]), record.query_id: record.batch_id}
    number = 1 if last is None else last.number + 1
    ends = {key: extent.end for key, extent in record.ranges.items()}
    offsets = {**({} if last is None else last.offsets), **ends}
    fingerprints = _known(last, record, queries)
    made = Decision(number, record, tuple(transactions), queries, group_id, at_ms, offsets, before, fingerprints)
    return replace(made, topics=topics)


def _known(last: Decision | None, record: BatchRecord, queries: Mapping[str, int]) -> dict[str, dict[int, Fingerprint]]:
    """Return the fingerprints of batches after ``record``; ``queries`` are the last batches by then."""
    oldest = {**queries, record.query_id: record.batch_id - RING + 1}
    before = {} if last is None else last.fingerprints
    kept = {
        query: {batch: each for batch, each in before.get(query, {}).items() if oldest[query] <= batch}
        for query in queries
    }
    if record.fingerprint is not None:
        kept[record.query_id][record.batch_id] = record.fingerprint
    return {query: batches for query, batches in kept.items() if batches}


def _nested(offsets: Mapping[PartitionKey, int]) -> dict[str, dict[str, dict[str, Any]]]:
    sources: dict[str, dict[str, dict[str, Any]]] = {}
    for (source, tp), offset in sorted(offsets.items()):
        ids = sources.setdefault(source, {}).setdefault(tp.topic, {})
        ids.setdefault(tp.topic_id, {})[str(tp.partition)] = offset
    return sources


def _flat(sources: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> dict[PartitionKey, int]:
    return {
        (source, TopicPartition(topic, topic_id, int(partition))): int(offset)
        for source, topics in sources.items()
        for topic, ids in topics.items()
        for topic_id, partitions in ids.items()
        for partition, offset in partitions.items()
    }


def decision_key(app_id: str) -> bytes:
    """Return the key of an application's decisions."""
    return f"{MARK}/{quote(app_id, safe='')}".encode()


def finished_key(app_id: str) -> bytes:
    """Return the key of the note that records which of an application's decisions is finished."""
    return decision_key(app_id) + f"/{FINISHED}".encode()


def app_of_key(key: bytes | None) -> tuple[str, bool] | None:
    """Return the application of a key, and whether it is the key of a finished note; None for keys of others."""
    parts = (key or b"").decode("utf-8", "replace").split("/")
    if parts[0] != MARK or len(parts) not in (2, 3) or parts[2:] not in ([], [FINISHED]):
        return None
    return unquote(parts[1]), len(parts) == 3


@dataclass(slots=True)
class Decisions:
    """The log of decisions of one application, read record by record."""

    recent: list[Decision] = field(default_factory=list)
    finished: int = 0
    """The number of the newest finished decision."""

    @property
    def last(self) -> Decision | None:
        """The newest decision."""
        return self.recent[-1] if self.recent else None

    @property
    def number(self) -> int:
        """The number of the newest decision; 0 before the first."""
        return self.recent[-1].number if self.recent else 0

    @property
    def standing(self) -> list[Decision]:
        """The newest decisions, without undone ones and those that undid them."""
        undone = {decision.record.attempt_id for decision in self.recent if decision.undone}
        return [decision for decision in self.recent if decision.record.attempt_id not in undone]

    @property
    def unfinished(self) -> Decision | None:
        """The decision whose transactions must still be ended, if there is one."""
        last = self.last
        return None if last is None or last.undone or last.number <= self.finished else last

    def take(self, is_note: bool, value: bytes | None) -> None:
        """Apply one committed record.

        Raises:
            DecisionFormatError: if it cannot be read.
        """
        text = (value or b"").decode("utf-8", "replace")
        if is_note:
            try:
                self.finished = max(self.finished, int(json.loads(text)["number"]))
            except (ValueError, KeyError, TypeError) as error:
                raise DecisionFormatError(f"not a note of sparkonce: {text[:200]!r} ({error!r})") from error
            return
        decision = Decision.from_json(text)
        if decision.number > self.number:  # compaction keeps order, so an older one after a newer is a copy
            self.recent = [*self.recent[-(KEPT_DECISIONS - 1) :], decision]


def finished_note(number: int) -> str:
    """Return the text that marks a decision as finished."""
    return json.dumps({"number": number}, separators=(",", ":"))


class Fate(Enum):
    """The state of one transaction that a decision commits."""

    WAITS = "waits"
    """It is still open, as its task left it."""
    COMMITTED = "committed"
    GONE = "gone"
    """It was aborted: it timed out, or another producer claimed its transactional id."""
    UNKNOWN = "unknown"
    """Its transactional id has expired, so its outcome is unknown."""


class Settlement(Enum):
    """How to settle an unfinished decision."""

    FINISH = "finish"
    """Commit the open transactions."""
    UNDO = "undo"
    """Some are gone and none is committed: undo the decision."""
    LOST = "lost"
    """Some are gone and others committed: the batch cannot be completed."""
    UNKNOWN = "unknown"
    """The outcome of some is unknown."""


def settle(fates: Sequence[Fate]) -> Settlement:
    """Return how to settle a decision from the states of its transactions."""
    found = set(fates)
    if found <= {Fate.WAITS, Fate.COMMITTED}:
        return Settlement.FINISH
    if Fate.UNKNOWN in found:
        # All of them expire at about the same time, a week after their last use: most likely all were committed.
        return Settlement.UNKNOWN
    return Settlement.LOST if Fate.COMMITTED in found else Settlement.UNDO


def ranges_text(record: BatchRecord, most: int = 5) -> str:
    """Return the offset ranges of a batch as text, for messages."""
    moved: list[tuple[PartitionKey, Any]] = sorted(record.moved.items())
    shown = ", ".join(f"{tp} [{extent.start}, {extent.end})" for (_, tp), extent in moved[:most])
    more = f" and {counted(len(moved) - most, 'more partition')}" if len(moved) > most else ""
    return (shown + more) or "no records"

"""Planted bugs in the shell, between the state machines and the sockets.

Each is a context manager that replaces a function of the production code in this process. Those of the state machines
are in `state_machines.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from lab.sim.planted.state_machines import PLANTED as OF_CORES
from lab.sim.planted.state_machines import Planted
from lab.sim.planted.zookeeper import OF_ZOOKEEPER
from lab.sim.replacing import replaced
from sparkonce.broker_lite.cluster import acknowledgements
from sparkonce.broker_lite.coordinators import reconciliation
from sparkonce.broker_lite.coordinators.group import ClassicGroup
from sparkonce.broker_lite.coordinators.group_messages import Answer
from sparkonce.broker_lite.handlers import (
    delete_records,
    end_transaction,
    envelope,
    produce,
    txn_offset_commit,
    write_txn_markers,
)
from sparkonce.broker_lite.log import batch_filter
from sparkonce.broker_lite.log.local_log import LocalLog
from sparkonce.broker_lite.log.partition_log import PartitionLog
from sparkonce.broker_lite.node import forwarding
from sparkonce.broker_lite.node.coordinated import Coordinated
from sparkonce.broker_lite.node.follower_fetches import FollowerFetches
from sparkonce.broker_lite.node.group_coordinator import GroupCoordinator
from sparkonce.broker_lite.node.markers import MarkerSender
from sparkonce.broker_lite.replication.leader import PartitionLeader
from sparkonce.broker_lite.replication.replicas import Event
from sparkonce.kafka.protocol.apis import ApiKey
from sparkonce.kafka.protocol.records import encode_batch

if TYPE_CHECKING:
    from sparkonce.broker_lite.log.batch_filter import CleaningRound
    from sparkonce.broker_lite.node.request import Body, Request

_SECOND_MS = 25
"""The delay of the second marker."""


def _acks_before_safe() -> AbstractContextManager[None]:
    """Answer acks=all as soon as the leader has appended."""

    def answer(broker: Any, request: Request, topics: Any, _unsafe: Any, _timeout_ms: int) -> Body:
        return produce.answer(broker, request, topics)

    return replaced(produce, "answer_when_safe", answer)


def _acks_by_end() -> AbstractContextManager[None]:
    """Let requests that wait until records are safe use the leader's log end offset instead of the high watermark."""
    return replaced(PartitionLeader, "is_acknowledged", lambda self, offset: offset < self.log.log_end_offset)


def _late_marker_ends_later_transaction() -> AbstractContextManager[None]:
    """Send markers that have waited for a broker although their transaction has ended meanwhile."""
    return replaced(MarkerSender, "_due", lambda self, leader: self._outbox.pop(leader, []))


def _error_silences_others() -> AbstractContextManager[None]:
    """Let the error of one waiting request keep others from being answered."""
    return replaced(acknowledgements, "_tell", lambda waiter, code: waiter.then(code))


def _followers_miss_what_their_fetch_has_caused() -> AbstractContextManager[None]:
    """Let a follower wait for new records although its own fetch has let a coordinator append some."""
    note = FollowerFetches._note

    def publish_after_that(self: FollowerFetches, *arguments: Any) -> Any:
        publish = self._publish
        events: list[Event] = []
        self._publish = events.extend
        try:
            return note(self, *arguments)
        finally:
            self._publish = publish
            publish(events)

    return replaced(FollowerFetches, "_note", publish_after_that)


def _marker_sent_twice() -> AbstractContextManager[None]:
    """Repeat each request that ends transactions, later."""
    send = MarkerSender._send

    def twice(self: MarkerSender, leader: int) -> None:
        member = self._member
        before = member.send

        def again(broker_id: int, request: Any, then: Callable[[Any], None]) -> None:
            before(broker_id, request, then)
            later = partial(before, broker_id, request, lambda _: None)
            self._scheduler.call_later(_SECOND_MS / 1000, later)

        member.send = again  # type: ignore[method-assign]
        try:
            send(self, leader)
        finally:
            member.send = before  # type: ignore[method-assign]

    return replaced(MarkerSender, "_send", twice)


def _offsets_outside_transaction() -> AbstractContextManager[None]:
    """Commit a transaction's offsets at once."""
    write = txn_offset_commit._write

    def encode_plainly(records: Any, **options: Any) -> bytearray:
        del options
        return encode_batch(records)

    def commit(broker: Any, request: Request, wanted: Any, offsets: Any, *arguments: Any) -> None:
        with replaced(txn_offset_commit, "encode_batch", encode_plainly):
            write(broker, request, wanted, offsets, *arguments)
        for key, value in offsets.items():
            broker.groups.offsets.put(key, value)

    return replaced(txn_offset_commit, "_write", commit)


def _coordinators_answer_at_once() -> AbstractContextManager[None]:
    """Let coordinators answer what is not safe yet."""

    def answer(_: Coordinated, _request: Request, _names: Collection[str], body: Body, _refused: Any) -> Body:
        return body

    return replaced(Coordinated, "answer", answer)


def _heartbeats_answered_at_once() -> AbstractContextManager[None]:
    """Let a coordinator answer KIP-848 heartbeats before their effect is safe."""
    wait = Coordinated.answer

    def answer(self: Coordinated, request: Request, names: Collection[str], body: Body, refused: Any) -> Body | None:
        return body if request.api_key == ApiKey.CONSUMER_GROUP_HEARTBEAT else wait(self, request, names, body, refused)

    return replaced(Coordinated, "answer", answer)


@contextmanager
def _shares_told_at_once() -> Iterator[None]:
    """Let a coordinator send assignments to members of a classic group before these are safe."""
    carry_out = GroupCoordinator.carry_out

    def at_once(self: GroupCoordinator, group: ClassicGroup, answers: list[Answer]) -> None:
        with replaced(Coordinated, "when_safe", lambda _self, _names, then: then({})):
            carry_out(self, group, answers)

    with replaced(GroupCoordinator, "carry_out", at_once):
        yield


def _given_before_given_up() -> AbstractContextManager[None]:
    """Let a KIP-848 group assign partitions that other members have not revoked yet."""
    return replaced(reconciliation, "_still_owns", lambda *_: False)


def _markers_answered_at_once() -> AbstractContextManager[None]:
    """Let a leader acknowledge a marker that its followers do not have yet."""

    def answer(_member: Any, request: Request, results: Any, _waits: Any) -> None:
        request.answer(write_txn_markers._response(request, results))

    return replaced(write_txn_markers, "_answer_when_safe", answer)


def _consumers_read_to_the_end() -> AbstractContextManager[None]:
    """Let consumers read records that are not safe."""
    read = LocalLog.read

    def to_the_end(self: PartitionLog, offset: int, size: int, first: bool, up_to_offset: int | None = None) -> Any:
        return read(self, offset, size, first, None if up_to_offset == self.high_watermark else up_to_offset)

    return replaced(LocalLog, "read", to_the_end)


def _forgotten(module: Any) -> Callable[[], AbstractContextManager[None]]:
    return lambda: replaced(module, "authorized", lambda *_: True)


def _loaded_groups_stay() -> AbstractContextManager[None]:
    """Let a coordinator keep its state when it has lost its leadership."""
    return replaced(Coordinated, "_drop", lambda *_: None)


def _compacted_too_much() -> AbstractContextManager[None]:
    """Let compaction drop the last record of each key as well."""
    stays = batch_filter._stays

    def earlier(cleaning: CleaningRound, offset: int, key: bytes | None, living: bool) -> bool:
        return stays(cleaning, offset, key, living) and offset > cleaning.offset_map.latest_offset

    return replaced(batch_filter, "_stays", earlier)


@contextmanager
def _malformed_sent_on() -> Iterator[None]:
    """Let a broker forward a malformed request, for which the controller closes the connection."""
    with replaced(forwarding, "_check", lambda *_: None), replaced(envelope, "ProtocolError", ()):
        yield


OF_SHELL = (
    Planted("acks-before-safe", "a handler that acknowledges before the high watermark", _acks_before_safe),
    Planted("acks-by-end", "the leader's end in place of the high watermark", _acks_by_end),
    Planted(
        "late-marker", "a marker that has waited too long for its broker is sent", _late_marker_ends_later_transaction
    ),
    Planted(
        "error-silences-others",
        "an error of one waiting request ends the loop that answers the others",
        _error_silences_others,
    ),
    Planted(
        "follower-waits-for-its-own",
        "what its own fetch has let a coordinator append",
        _followers_miss_what_their_fetch_has_caused,
    ),
    Planted("marker-sent-twice", "a coordinator that sends its markers again, later", _marker_sent_twice),
    Planted("offsets-outside-transaction", "TxnOffsetCommit as OffsetCommit", _offsets_outside_transaction),
    Planted("coordinators-answer-at-once", "answers that are not safe", _coordinators_answer_at_once),
    Planted("heartbeats-answered-at-once", "the same of heartbeats alone", _heartbeats_answered_at_once),
    Planted("shares-told-at-once", "the same of classic groups' assignments alone", _shares_told_at_once),
    Planted("given-before-given-up", "KIP-848 without its revocations", _given_before_given_up),
    Planted("markers-answered-at-once", "markers that are not safe", _markers_answered_at_once),
    Planted("consumers-read-to-the-end", "a fetch without the high watermark", _consumers_read_to_the_end),
    Planted("end-not-authorized", "an authorisation forgotten in EndTxn", _forgotten(end_transaction)),
    Planted("offsets-not-authorized", "the same in TxnOffsetCommit", _forgotten(txn_offset_commit)),
    Planted("deletion-not-authorized", "the same in DeleteRecords", _forgotten(delete_records)),
    Planted("malformed-sent-on", "what is no request reaches the controller", _malformed_sent_on),
    Planted("compacted-too-much", "compaction without the last record of a key", _compacted_too_much),
    Planted("coordinators-not-unloaded", "what was known in a former epoch is kept", _loaded_groups_stay),
)
PLANTED = (*OF_SHELL, *OF_ZOOKEEPER, *OF_CORES)
"""All of them."""

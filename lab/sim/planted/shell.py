"""Planted bugs in the shell, between the state machines and the sockets.

Each is a context manager that replaces a function of the production code in this process. Those of the state machines
are in `state_machines.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from lab.sim.planted.state_machines import PLANTED as OF_CORES
from lab.sim.planted.state_machines import Planted
from lab.sim.planted.zookeeper import OF_ZOOKEEPER
from lab.sim.replacing import replaced
from sparkonce.broker_lite.coordinators import reconciliation
from sparkonce.broker_lite.coordinators.group_messages import Answer
from sparkonce.broker_lite.handlers import (
    delete_records,
    end_transaction,
    envelope,
    join_group,
    produce,
    sync_group,
    txn_offset_commit,
    write_txn_markers,
)
from sparkonce.broker_lite.log import batch_filter
from sparkonce.broker_lite.log.local_log import LocalLog
from sparkonce.broker_lite.log.partition_log import PartitionLog
from sparkonce.broker_lite.node import forwarding, group_responses
from sparkonce.broker_lite.node.coordinated import Coordinated
from sparkonce.broker_lite.node.follower_fetches import FollowerFetches
from sparkonce.broker_lite.node.group_coordinator import GroupCoordinator
from sparkonce.broker_lite.node.markers import MarkerSender
from sparkonce.broker_lite.replication.leader import PartitionLeader
from sparkonce.broker_lite.replication.replicas import Event
from sparkonce.broker_lite.waiting import Execution, Promise
from sparkonce.kafka.protocol.errors import ErrorCode
from sparkonce.kafka.protocol.records import encode_batch

if TYPE_CHECKING:
    from sparkonce.broker_lite.coordinators.consumer_group_messages import HeartbeatAnswer
    from sparkonce.broker_lite.log.batch_filter import CleaningRound
    from sparkonce.broker_lite.node.broker import Broker
    from sparkonce.broker_lite.node.coordinated import Refusals
    from sparkonce.broker_lite.node.request import Body, Request

_SECOND_MS = 25
"""The delay of the second marker."""


def _acks_before_safe() -> AbstractContextManager[None]:
    """Answer acks=all as soon as the leader has appended."""

    async def do_not_wait(_broker: Any, _unsafe: Any) -> None:
        pass

    return replaced(produce, "_wait_until_safe", do_not_wait)


def _leader_as_before_the_wait() -> AbstractContextManager[None]:
    """Let a Produce append as the leader that it was before it waited for the transaction's coordinator."""
    verify = produce._verify

    async def remembering(broker: Broker, request: Request, wanted: Any) -> Any:
        led = broker.cluster._led
        before = dict(led)
        verified = await verify(broker, request, wanted)
        places = {(topic.name, index) for topic in wanted.topics for index, _ in topic.partitions}
        led.update({place: kept for place, kept in before.items() if place in places})
        return verified

    return replaced(produce, "_verify", remembering)


def _acks_by_end() -> AbstractContextManager[None]:
    """Let requests that wait until records are safe use the leader's log end offset instead of the high watermark."""
    return replaced(PartitionLeader, "is_acknowledged", lambda self, offset: offset < self.log.log_end_offset)


def _late_marker_ends_later_transaction() -> AbstractContextManager[None]:
    """Send markers that have waited for a broker although their transaction has ended meanwhile."""
    return replaced(MarkerSender, "_due", lambda self, leader: self._outbox.pop(leader, []))


def _error_silences_others() -> AbstractContextManager[None]:
    """Let the error of one waiting request keep others from being answered."""
    resume = Execution.resume

    def raising(self: Execution) -> None:
        on_end, errors = self._on_end, []

        def note(result: Any, error: Exception | None) -> None:
            errors.append(error)
            on_end(result, error)

        self._on_end = note
        resume(self)
        self._on_end = on_end
        for error in errors:
            if error is not None:
                raise error

    return replaced(Execution, "resume", raising)


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

    def commit(broker: Any, request: Request, wanted: Any, offsets: Any, *arguments: Any) -> ErrorCode:
        with replaced(txn_offset_commit, "encode_batch", encode_plainly):
            error = write(broker, request, wanted, offsets, *arguments)
        for key, value in offsets.items():
            broker.groups.offsets.put(key, value)
        return error

    return replaced(txn_offset_commit, "_write", commit)


def _coordinators_answer_at_once() -> AbstractContextManager[None]:
    """Let coordinators answer what is not safe yet."""

    async def do_not_wait(_: Coordinated, _names: Iterable[str]) -> Refusals:
        return {}

    return replaced(Coordinated, "safe", do_not_wait)


@contextmanager
def _heartbeats_answered_at_once() -> Iterator[None]:
    """Let a coordinator answer KIP-848 heartbeats before their effect is safe."""
    heartbeat, safe = GroupCoordinator.heartbeat, Coordinated.safe
    handled: list[Coordinated] = []
    """The coordinator whose heartbeat is being answered."""

    def note(self: GroupCoordinator, *arguments: Any) -> HeartbeatAnswer:
        answer = heartbeat(self, *arguments)
        handled.append(self.partitions)
        return answer

    async def wait_for_others(self: Coordinated, names: Iterable[str]) -> Refusals:
        if self in handled:
            handled.clear()
            return {}
        return await safe(self, names)

    with replaced(GroupCoordinator, "heartbeat", note), replaced(Coordinated, "safe", wait_for_others):
        yield


@contextmanager
def _shares_told_at_once() -> Iterator[None]:
    """Let a coordinator send assignments to members of a classic group before these are safe."""

    async def at_once(_: Coordinated, request: Request, _group_id: str, promise: Promise[Answer]) -> Body:
        return group_responses.encoded(request, await promise)

    with replaced(join_group, "response", at_once), replaced(sync_group, "response", at_once):
        yield


def _given_before_given_up() -> AbstractContextManager[None]:
    """Let a KIP-848 group assign partitions that other members have not revoked yet."""
    return replaced(reconciliation, "_still_owns", lambda *_: False)


def _markers_answered_at_once() -> AbstractContextManager[None]:
    """Let a leader acknowledge a marker that its followers do not have yet."""
    write = write_txn_markers._write

    def nothing_to_wait_for(*arguments: Any) -> tuple[ErrorCode, int | None]:
        return write(*arguments)[0], None

    return replaced(write_txn_markers, "_write", nothing_to_wait_for)


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
        "leads-as-before-the-wait", "leadership that is not looked up again after a wait", _leader_as_before_the_wait
    ),
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

"""Whether a cluster has recovered, and its final state: equal logs, atomic transactions, their offsets."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from lab.sim.clients.groups import group_problem
from lab.sim.judges.atomicity import read_committed
from lab.sim.judges.cleaned_logs import whole
from lab.sim.judges.groups import coordinator_problem, look_at_offsets
from lab.sim.judges.images import as_known, decoded
from sparkonce.broker_lite.controller.records import NO_LEADER
from sparkonce.broker_lite.replication.invariants import ViolationError, check_images_equal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lab.sim.clients.client import Guest
    from lab.sim.clients.clients import Clients
    from lab.sim.clients.transactional import TransactionalProducer
    from lab.sim.world import World
    from sparkonce.broker_lite.controller.image import PartitionKey

REPLICAS: Final = 3
_LOOK_MS: Final = 200
_CALM_MS: Final = 75_000


def recovery_problem(world: World, clients: Clients) -> str | None:
    """Return what has not recovered yet; None if nothing is left."""
    for producer in clients.producers:
        if producer.pending:
            return f"producer {producer.producer} has {producer.pending} batches that nobody has answered"
    for transactional in clients.transactional:
        if transactional.pending:
            return f"transactional producer {transactional.producer} has {transactional.pending} open transactions"
    for group in world.plan.groups:
        wrong = group_problem([each for each in clients.members if each.plan is group and each.alive], world.places)
        if wrong is not None:
            return f"group {group.group_id}: {wrong}"
    if clients.standalone is not None and not clients.standalone.is_up:
        return "the standalone broker is not up"
    down = [each.node_id for each in world.brokers.values() if each.process is None]
    if down:
        return f"brokers {down} are not up"
    for key, state in world.image.partitions():
        moves = state.adding_replicas or state.removing_replicas
        if state.leader == NO_LEADER or set(state.in_sync_replicas) != set(state.replicas) or moves:
            return f"{world.name_of(key)} is {state}"
        logs = [world.logs[each, key] for each in state.replicas if (each, key) in world.logs]
        if len(logs) < len(state.replicas):
            return f"{world.name_of(key)} is not at all of {state.replicas}"
        ends = {(log.log_end_offset, log.high_watermark) for log in logs}
        if len(ends) > 1 or any(end != safe for end, safe in ends):
            return f"{world.name_of(key)}: ends and high watermarks are {sorted(ends)}"
        stable = {log.last_stable_offset for log in logs}
        if not world.history_of(key).lossy and stable != {logs[0].high_watermark}:
            return f"{world.name_of(key)}: a transaction hangs, last stable offsets are {sorted(stable)}"
    return next(filter(None, (coordinator_problem(world, group) for group in world.plan.groups)), None)


def compare_images(world: World) -> None:
    """Compare the brokers' images with the durable log (images-equal)."""
    for machine in world.brokers.values():
        process = machine.process
        member = None if process is None else process.member
        if process is not None and member is not None and member.image.next_offset == world.image.next_offset:
            ours = as_known(world.image, type(process))
            check_images_equal(decoded(process.encoded_image(), ours.next_offset), ours, f"broker {machine.node_id}")


def look_at_disks(world: World, clients: Clients) -> None:
    """Check all files, once the cluster has recovered."""
    for key, state in world.image.partitions():
        replicas = state.replicas if world.is_planned(key) else ()
        for broker_id in replicas:
            log, cleaned_end = world.logs[broker_id, key], world.cleaned.of(broker_id, key)
            on_disk = whole(world.name_of(key), log.batches, log.batches_on_disk(), cleaned_end, log.log_end_offset)
            if log.batches != on_disk or log.batches != world.logs[replicas[0], key].batches:
                raise ViolationError("logs-match", f"{world.name_of(key)}: files of equal logs differ in the end")
    if clients.retention_checker is not None:
        clients.retention_checker.look()
    if clients.standalone is not None:
        clients.standalone.retention_checker.look()
    for consumer in clients.consumers:
        consumer.is_out_of_range()
    if world.plan.transactional:
        _look_at_transactions(world, clients.transactional)
    for group in world.plan.groups:
        look_at_offsets(world, group)


def look_with_guests(world: World, guests: Sequence[Guest]) -> None:
    """Let clients check their own resources.

    Raises:
        ViolationError: if a client cannot.
    """
    until_ms = world.scheduler.now_ms + _CALM_MS
    for guest in guests:
        guest.look_around()
    while not all(guest.has_looked for guest in guests):
        world.pass_until(world.scheduler.now_ms + _LOOK_MS)
        if world.scheduler.now_ms > until_ms:
            raise ViolationError("liveness", f"after {_CALM_MS} ms a client has not found its things")


def _look_at_transactions(world: World, producers: Iterable[TransactionalProducer]) -> None:
    """Read everything as a read_committed consumer, from every replica; then the committed offsets."""
    for number in range(REPLICAS):
        found: dict[PartitionKey, Counter[int]] = {}
        for key, state in world.image.partitions():
            if not world.history_of(key).lossy:
                log = world.logs[state.replicas[number], key]
                found[key], offset = Counter(), 0
                while offset < log.last_stable_offset:
                    batches, offset = read_committed(log, offset)
                    found[key].update(crc for _, crc in batches)
        world.transactions.check_all(found)
    for producer in producers:
        if producer.with_offsets and not world.is_lossy:
            _look_at_offsets(world, producer, found)


def _look_at_offsets(world: World, producer: TransactionalProducer, read: Mapping[PartitionKey, Counter[int]]) -> None:
    told: list[int] = []

    async def ask() -> None:
        told.append(await producer.committed_offset())

    producer.run(ask())
    until_ms = world.scheduler.now_ms + _CALM_MS
    while not told and world.scheduler.now_ms < until_ms:
        world.pass_until(world.scheduler.now_ms + _LOOK_MS)
    expected = _may_be_told(producer, read)
    if not told or told[0] not in expected:
        text = f"group {producer.group_id}: its offset is {told}; by the transactions that took place it is {expected}"
        raise ViolationError("offsets-atomic", text)


def _may_be_told(producer: TransactionalProducer, read: Mapping[PartitionKey, Counter[int]]) -> list[int]:
    """Return the offsets that a group may have: that of the last committed transaction, or a later one's.

    A later one's offsets may be committed if the end of the previous transaction may have ended it:
    see `sim/judges/atomicity.py`.
    """
    found = []
    for number, attempt in reversed([*enumerate(producer.with_offsets, 1)]):
        is_seen = any(read[key][crc] for key, crc in attempt.batches)
        if is_seen or attempt.first_part is not None:
            found.append(number)
        if is_seen and attempt.first_part is None:
            return found
    return [*found, -1]

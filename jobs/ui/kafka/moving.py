"""Manual changes of a consumer group's committed offsets: planned first, and executed only as planned."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass

from sparkonce.connectors.kafka_source.resolving import NO_MATCH
from sparkonce.jobs.ui.errors import RefusedError
from sparkonce.kafka.client.client import EARLIEST, LATEST, Client
from sparkonce.kafka.client.metadata import MissingTopicError
from sparkonce.kafka.client.settings import read_settings
from sparkonce.offset_store.errors import OffsetStoreError
from sparkonce.offset_store.group import Committed, CommittedOffset, Slot
from sparkonce.offset_store.kafka_group import KafkaGroupOffsets
from sparkonce.words import counted


@dataclass(frozen=True, slots=True)
class Target:
    """The target of offsets: one of the four fields is set."""

    topic: str
    partition: int | None
    """None for all partitions with committed offsets, or all of the topic if there are none."""
    offset: int | None = None
    at_ms: int | None = None
    to_start: bool = False
    to_end: bool = False


@dataclass(frozen=True, slots=True)
class Move:
    """One offset, before and after; None: not committed before."""

    slot: Slot
    before: int | None
    after: int
    topic_id: str = ""

    def __str__(self) -> str:
        topic, partition = self.slot
        distance = "" if self.before is None else f" ({_distance(self.after - self.before)})"
        return f"{topic}-{partition}: {'none' if self.before is None else self.before} → {self.after}{distance}"


def _distance(offsets: int) -> str:
    if offsets < 0:
        return f"{counted(-offsets, 'offset')} again"
    return f"{counted(offsets, 'offset')} left out"


def plan(options: Mapping[str, str], group_id: str, target: Target) -> list[Move]:
    """Return the changes, without executing them.

    Raises:
        RefusedError: there is no such partition, or its log does not have that offset.
        OffsetStoreError, KafkaError, OSError: the brokers do not answer, or return an error.
    """
    with closing(Client(read_settings(options))) as client:
        return _planned(client, KafkaGroupOffsets(client, group_id).fetch(), target)


def move(options: Mapping[str, str], group_id: str, target: Target, planned: str) -> list[Move]:
    """Execute the `plan` of a `fingerprint`. Raises RefusedError if it has changed, or members exist, or as `plan`."""
    with closing(Client(read_settings(options))) as client:
        group, moves = KafkaGroupOffsets(client, group_id), list[Move]()
        try:
            group.check_vacant()
        except OffsetStoreError as error:
            raise RefusedError(f"Nothing was changed: {error}") from error

        def build(now: Committed) -> Committed:
            if moves and all(each.slot in now and now[each.slot].offset == each.after for each in moves):
                return {}  # an earlier attempt succeeded, and its response was lost
            found = _planned(client, now, target)
            if fingerprint(found) != planned:
                was = "It is not known whether this was changed" if moves else "Nothing was changed"
                raise RefusedError(f"{was}: the offsets have moved since they were shown. Look again.")
            moves[:] = found
            return {each.slot: CommittedOffset(each.after) for each in moves}

        group.update(build)
        return moves


def fingerprint(moves: list[Move]) -> str:
    """Return a text that identifies the moves."""
    return ";".join(
        f"{topic}-{partition}:{each.topic_id}:{each.before}:{each.after}"
        for each in moves
        for topic, partition in [each.slot]
    )


def _planned(client: Client, now: Committed, target: Target) -> list[Move]:
    try:
        known = client.topics([target.topic])
    except MissingTopicError as error:
        raise RefusedError(f"There is no topic {target.topic}.") from error
    there = sorted(known[target.topic].partitions)
    chosen = there if target.partition is None else [target.partition]
    if target.partition is None:
        chosen = sorted(partition for topic, partition in now if topic == target.topic) or there
    missing = [each for each in chosen if each not in there]
    if missing:
        raise RefusedError(f"Topic {target.topic} has no partition {missing[0]}.")
    slots = [(target.topic, each) for each in chosen]
    start, end = (client.offsets(dict.fromkeys(slots, at), known) for at in (EARLIEST, LATEST))
    found = {} if target.at_ms is None else client.offsets(dict.fromkeys(slots, target.at_ms), known)
    moves = []
    for slot in slots:
        after = start[slot] if target.to_start else end[slot]
        if target.offset is not None:
            after = target.offset
        elif target.at_ms is not None and found[slot] != NO_MATCH:
            after = found[slot]
        if not start[slot] <= after <= end[slot]:
            raise RefusedError(
                f"{slot[0]}-{slot[1]} holds offsets {start[slot]} to {end[slot]}; {after} is not among them."
            )
        before = now[slot].offset if slot in now else None
        if before != after:
            moves.append(Move(slot, before, after, known[target.topic].topic_id))
    return moves

"""The view of a story: steps with what every replica has, and figures at the end. Values only, drawn elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Cell:
    """One record of one replica."""

    offset: int
    epoch: int
    label: str
    acknowledged: bool = False
    """Whether it was acknowledged to its producer."""


@dataclass(frozen=True, slots=True)
class ReplicaView:
    """One replica at one step, as it sees itself."""

    broker_id: int
    role: str
    """leads, follows, waits (nobody leads) or down."""
    epoch: int
    """The leader epoch that it goes by; -1 if it goes by none."""
    cells: tuple[Cell, ...]
    high_watermark: int
    in_sync: bool
    """Whether the controller counts it as in sync."""

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record gets."""
        return self.cells[-1].offset + 1 if self.cells else 0


@dataclass(frozen=True, slots=True)
class Step:
    """What has happened, and how it looks then."""

    number: int
    text: str
    leader: int
    """The leader according to the controller; -1 for none."""
    leader_epoch: int
    in_sync_replicas: tuple[int, ...]
    eligible_leader_replicas: tuple[int, ...]
    replicas: tuple[ReplicaView, ...]
    note: str = ""
    """What a client sees, where the story has one."""


@dataclass(frozen=True, slots=True)
class Table:
    """Figures that no step shows."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Telling:
    """One story by one rule, from the beginning to the end."""

    rule: str
    steps: tuple[Step, ...]
    figures: Mapping[str, int]
    """What was counted at the end: lost, diverged, and what else the story is about."""
    tables: tuple[Table, ...] = field(default=())

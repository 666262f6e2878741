"""Files that a broker can do without, and that are gone after its death, or cut, or have something else in them."""

from __future__ import annotations

import random
from typing import Final

from lab.sim.disk import SimulatedDisk
from lab.sim.scheduler import stream

_SEEDS: Final = 0.2
"""In how many seeds files of a cluster's brokers are damaged; those of standalone ones are in all."""
_DEATHS: Final = 0.5
"""How many deaths damage files."""
_DAMAGED: Final = 0.5
"""How many of the files are damaged when some are."""
_REPLACEABLE: Final = (
    ".index", ".timeindex", ".snapshot", "cleaner-offset-checkpoint", "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
)  # fmt: skip
_CHECKED: Final = ".snapshot"


def has_damage(seed: int) -> bool:
    """Whether files of a seed's cluster are damaged."""
    return stream("damage", seed).random() < _SEEDS


def damage(disk: SimulatedDisk, chance: random.Random) -> int:
    """Damage some files of a disk whose broker has died, or none; returns how many."""
    if chance.random() >= _DEATHS:
        return 0
    paths = [path for path in sorted(disk.files) if path.endswith(_REPLACEABLE) and chance.random() < _DAMAGED]
    for path in paths:
        # Other bits are only noticed where there is a checksum.
        content, kind = disk.files[path], chance.randrange(3 if path.endswith(_CHECKED) else 2)
        if kind == 0:
            del disk.files[path]
            continue
        if kind == 1:
            del content.data[chance.randrange(len(content.data) + 1) :]
        elif content.data:
            content.data[chance.randrange(len(content.data))] ^= 1 << chance.randrange(8)
        content.durable_size = len(content.data)
    return len(paths)

"""Damage to files that a broker can rebuild: after its death they are missing, truncated or overwritten."""

from __future__ import annotations

import random
from typing import Final

from lab.sim.disk import SimulatedDisk
from lab.sim.scheduler import stream

_SEEDS: Final = 0.2
"""The share of seeds with damaged files of the cluster's brokers; those of standalone ones are damaged in all."""
_DEATHS: Final = 0.5
"""The share of deaths that damage files."""
_DAMAGED: Final = 0.5
"""The share of files damaged then."""
_REPLACEABLE: Final = (
    ".index", ".timeindex", ".snapshot", "cleaner-offset-checkpoint", "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
)  # fmt: skip
_CHECKED: Final = ".snapshot"


def has_damage(seed: int) -> bool:
    """Whether files of a seed's cluster are damaged."""
    return stream("damage", seed).random() < _SEEDS


def damage(disk: SimulatedDisk, chance: random.Random) -> int:
    """Damage some files of a disk whose broker has died, or none; return how many."""
    if chance.random() >= _DEATHS:
        return 0
    paths = [path for path in sorted(disk.files) if path.endswith(_REPLACEABLE) and chance.random() < _DAMAGED]
    for path in paths:
        # Flipped bits are only noticed in files with a checksum.
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

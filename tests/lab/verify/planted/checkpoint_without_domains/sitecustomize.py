"""Checkpoints have no domains, and nobody notices when they are written."""

from planting import plant


def change(checkpoints):
    take = checkpoints._Made._take
    checkpoints._Made._take = lambda made, kind, actions: take(made, kind, [] if kind == "domainMetadata" else actions)
    checkpoints._compare = lambda *_: checkpoints._Found(1, 1)


plant("sparkonce.offset_store.log.checkpoints", change)

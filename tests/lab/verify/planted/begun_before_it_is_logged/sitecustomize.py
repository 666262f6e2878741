"""The sink begins a batch before Spark has logged it: what it finds in the log is the batch before."""

from planting import plant


def change(checkpoint):
    latest = checkpoint.Checkpoint.latest_batch_id
    checkpoint.Checkpoint.latest_batch_id = lambda self: max(0, latest(self) - 1)


plant("sparkonce.exactly_once.checkpoint", change)

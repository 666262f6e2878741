"""A MERGE gets the batch id as its transaction version, which begins anew with each checkpoint."""

from planting import plant


def change(sequence):
    intent = sequence.Intent
    sequence.Intent = lambda _, record, *rest: intent(record.batch_id + 1, record, *rest)


plant("sparkonce.connectors.delta_spark.sequence", change)

"""Of several ranges one is missing, as after a filter."""

from planting import plant


def leave_out(hand_over):
    rows = hand_over.HandOver.rows
    hand_over.HandOver.rows = lambda self, wanted: rows(self, list(wanted)[:1])


plant("sparkonce.connectors.kafka_source.hand_over", leave_out)

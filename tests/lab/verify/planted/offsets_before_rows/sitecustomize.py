"""exactly-once commits the offsets before the tasks, and the rows after them."""

from planting import plant


def change(guarantee):
    writes = guarantee.Writes
    guarantee.ORDERS[guarantee.Guarantee.EXACTLY_ONCE] = guarantee.Order((writes.OFFSETS,), (writes.ROWS,))


plant("sparkonce.exactly_once.guarantee", change)

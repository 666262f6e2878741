"""exactly-once makes two commits, rows and then offsets."""

from planting import plant


def change(guarantee):
    writes = guarantee.Writes
    guarantee.ORDERS[guarantee.Guarantee.EXACTLY_ONCE] = guarantee.Order((), (writes.ROWS, writes.OFFSETS))


plant("sparkonce.exactly_once.guarantee", change)

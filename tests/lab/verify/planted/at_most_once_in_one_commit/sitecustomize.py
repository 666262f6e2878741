"""at-most-once has the order of exactly-once: stronger than promised, and not what was asked for."""

from planting import plant


def change(guarantee):
    orders, names = guarantee.ORDERS, guarantee.Guarantee
    orders[names.AT_MOST_ONCE] = orders[names.EXACTLY_ONCE]


plant("sparkonce.exactly_once.guarantee", change)

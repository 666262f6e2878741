"""at-least-once has the order of at-most-once."""

from planting import plant


def change(guarantee):
    orders, names = guarantee.ORDERS, guarantee.Guarantee
    orders[names.AT_LEAST_ONCE] = orders[names.AT_MOST_ONCE]


plant("sparkonce.exactly_once.guarantee", change)

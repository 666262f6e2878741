"""An error of a commit is believed: nobody looks whether it landed."""

from planting import plant


def change(commit):
    commit.Delivery._landed_after = lambda self, error, what, plan: False


plant("sparkonce.exactly_once.commit", change)

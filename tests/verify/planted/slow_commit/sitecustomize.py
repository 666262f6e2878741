"""No bug, but the time between comparison and commit that `another_handle` needs to show: to compare with."""

import time

from planting import plant

PAUSE_S = 0.5


def change(delta):
    commit = delta.DeltaSnapshot.commit

    def slowly(self, what):
        time.sleep(PAUSE_S)
        commit(self, what)

    delta.DeltaSnapshot.commit = slowly


plant("offset_store.delta", change)

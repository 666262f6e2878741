"""What was compared with one handle of the table is committed through another, a newer one."""

import time

from planting import plant

PAUSE_S = 0.5


def change(delta):
    commit = delta.DeltaSnapshot.commit

    def through_another(self, what):
        time.sleep(PAUSE_S)  # as in slow_commit
        newer = delta.DeltaTable(self.table.table_uri)
        commit(delta.DeltaSnapshot(newer, self.app_id), what)

    delta.DeltaSnapshot.commit = through_another


plant("offset_store.delta", change)

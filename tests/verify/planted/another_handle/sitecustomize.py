"""What was compared with one handle of the table is committed through another, a newer one.

The point sink.before_commit lies between the two, as in `point_after_comparison`.
"""

from dataclasses import replace

from planting import plant


def move_point(commit):
    reach = commit.reach

    def reach_others(point, *where):
        if point is not commit.CrashPoint.SINK_BEFORE_COMMIT:
            reach(point, *where)

    commit.reach = reach_others


def change(delta):
    commit = delta.DeltaSnapshot.commit

    def through_another(self, what):
        from exactly_once.crash_points import CrashPoint, reach

        reach(CrashPoint.SINK_BEFORE_COMMIT, what.record.batch_id, what.record.app_id)
        newer = delta.DeltaTable(self.table.table_uri)
        commit(replace(self, table=newer), what)

    delta.DeltaSnapshot.commit = through_another


plant("exactly_once.commit", move_point)
plant("offset_store.delta", change)

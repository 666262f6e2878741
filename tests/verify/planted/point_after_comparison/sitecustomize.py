"""No bug: the point sink.before_commit lies between the comparison and the commit. To compare with `another_handle`."""

from planting import plant


def move_point(commit):
    reach = commit.reach

    def reach_others(point, *where):
        if point is not commit.CrashPoint.SINK_BEFORE_COMMIT:
            reach(point, *where)

    commit.reach = reach_others


def change(delta):
    commit = delta.DeltaSnapshot.commit

    def after_comparison(self, what):
        from exactly_once.crash_points import CrashPoint, reach

        reach(CrashPoint.SINK_BEFORE_COMMIT, what.record.batch_id, what.record.app_id)
        commit(self, what)

    delta.DeltaSnapshot.commit = after_comparison


plant("exactly_once.commit", move_point)
plant("offset_store.delta", change)

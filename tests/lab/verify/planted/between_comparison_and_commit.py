"""Move the point sink.before_commit to where two drivers can pass the comparison before either of them commits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from planting import plant


def move_point_there(commit_through: Callable[[Any], Any]) -> None:
    """Have the sink reach its point there, and then commit through ``commit_through(snapshot)``."""

    def skip_point(commit: Any) -> None:
        reach = commit.reach

        def reach_others(point: Any, *where: Any) -> None:
            if point is not commit.SinkPoint.BEFORE_COMMIT:
                reach(point, *where)

        commit.reach = reach_others

    def add_point(delta: Any) -> None:
        commit = delta.DeltaSnapshot.commit

        def reach_and_commit(self: Any, what: Any) -> None:
            from sparkonce.crash_points import reach
            from sparkonce.exactly_once.crash_points import SinkPoint

            reach(SinkPoint.BEFORE_COMMIT, what.record.batch_id, what.record.app_id)
            commit(commit_through(self), what)

        delta.DeltaSnapshot.commit = reach_and_commit

    plant("sparkonce.exactly_once.commit", skip_point)
    plant("sparkonce.offset_store.delta", add_point)

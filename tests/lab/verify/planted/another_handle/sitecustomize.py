"""What was compared with one state of the table is committed as if it had been compared with a newer one.

The point sink.before_commit lies between the two, as in `point_after_comparison`.
"""

from dataclasses import replace

from between_comparison_and_commit import move_point_there


def through_another(snapshot):
    return replace(snapshot, state=snapshot.log.state())


move_point_there(through_another)

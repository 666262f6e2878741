"""What was compared with one handle of the table is committed through another, a newer one.

The point sink.before_commit lies between the two, as in `point_after_comparison`.
"""

from dataclasses import replace

from between_comparison_and_commit import move_point_there


def through_another(snapshot):
    return replace(snapshot, table=type(snapshot.table)(snapshot.table.table_uri))


move_point_there(through_another)

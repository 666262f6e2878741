"""No bug: the point sink.before_commit lies between the comparison and the commit. To compare with `another_handle`."""

from between_comparison_and_commit import move_point_there

move_point_there(lambda snapshot: snapshot)

"""The crash points of the source."""

from __future__ import annotations

from sparkonce.crash_points import CrashPoint


class SourcePoint(CrashPoint):
    """The steps of a batch in the planner and its tasks."""

    PLANNED = "source.planned"
    """The end of a batch is chosen; Spark has not yet logged it."""
    SPLIT = "source.split"
    """Spark has logged the end of a batch; its tasks are about to be planned."""
    READING = "source.reading"
    """A task has read some of its records."""
    READ = "source.read"
    """A task has read all of its records."""
    FINISHED = "source.finished"
    """Spark's checkpoint has the whole batch; the next one is about to be constructed."""

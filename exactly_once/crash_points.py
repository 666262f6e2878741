"""The crash points of all sinks: those of the commit are reached here, those of tasks in the connectors."""

from __future__ import annotations

from sparkonce.crash_points import CrashPoint


class SinkPoint(CrashPoint):
    """The steps of a batch in a sink."""

    BEGUN = "sink.begun"
    """The batch was logged by Spark and compared with the store; nothing of it is written."""
    WRITING = "sink.writing"
    """A task has received some rows; its data file is not finished, or none of them are sent to Kafka."""
    FILE_WRITTEN = "sink.file_written"
    """A task has finished a data file, or Kafka has acknowledged all its rows; its driver does not know of it yet."""
    BEFORE_COMMIT = "sink.before_commit"
    """All files of the batch are written; the table does not name them yet."""
    OFFSETS_LANDED = "sink.offsets_landed"
    """A commit of offsets alone is in the log; its response is on the way."""
    ROWS_LANDED = "sink.rows_landed"
    """The commit with the rows is in the log; its response is on the way."""
    BETWEEN_WRITES = "sink.between_writes"
    """One of the two writes, rows and offsets, has landed; the other has not. Never reached by exactly-once."""
    AFTER_COMMIT = "sink.after_commit"
    """All writes of the batch have landed; Spark's checkpoint does not know of it."""
    BETWEEN_TARGETS = "sink.between_targets"
    """The dead letters of a batch are delivered; its rows are not. Or other tables have their part of it, and the next
    one has not."""

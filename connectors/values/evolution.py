"""Events and errors of schema evolution."""

from __future__ import annotations

from sparkonce.options import OptionError

REMEDY = (
    "Start the query again, from load() on: it then reads values as the newer version, and mergeSchema=true on "
    "delta_once adds the new columns. schemaEvolution=none would go on without them"
)
"""The remedy of a `SchemaChangedError`, the end of its message."""


class NoSchemaYetError(OptionError):
    """A subject without a schema: nothing that has one has been written to the topic."""


class SchemaChangedError(RuntimeError):
    """A query that is to be started again, since its values have a newer schema."""


class NewerThanBegunError(RuntimeError):
    """A batch that must be completed with a version of a schema, and has a value of a newer one."""


class UnknownWriterError(RuntimeError):
    """A record that names a schema which the registry does not have, where that must not make it a dead letter."""

    def __init__(self, row: int, reason: str) -> None:
        """``row`` is the record's number in its batch."""
        super().__init__(reason)
        self.row = row

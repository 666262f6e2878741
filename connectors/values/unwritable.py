"""Rows that cannot be written with a schema."""

from __future__ import annotations


class UnwritableRowError(ValueError):
    """A row that does not fit the schema: where, and why."""

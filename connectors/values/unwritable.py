"""Rows that cannot be written with a schema."""

from __future__ import annotations


class UnwritableRowError(ValueError):
    """A row that the schema does not take: where, and why."""

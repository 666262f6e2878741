"""Errors of pages and their forms."""

from __future__ import annotations


class NoSuchThingError(LookupError):
    """The page's subject does not exist; the message says what."""


class RefusedError(ValueError):
    """A rejected form; the message says why, and the remedy."""

"""What a page, or a form of it, cannot do."""

from __future__ import annotations


class NoSuchThingError(LookupError):
    """The page is about something that does not exist; the message says what."""


class RefusedError(ValueError):
    """A form that cannot be carried out; the message says why, and what to do."""

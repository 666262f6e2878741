"""What a page of `sparkonce ui` is: a path, a function that reads its data, and a template that shows it.

A page is one module in `pages/` and a template beside it. Its function is called in a thread, again and again while
somebody looks, and returns what the template needs; it reads, keeps what is costly in the `Site`, and changes nothing.
What a template puts into `{% call live("tr", id) %}` is updated on its own (`rendering.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from sparkonce.jobs.ui.errors import NoSuchThingError, RefusedError
from sparkonce.jobs.ui.site import Site

__all__ = ["Action", "Asked", "NoSuchThingError", "Page", "Part", "Proposal", "RefusedError", "part"]


@dataclass(frozen=True, slots=True)
class Asked:
    """What a request asks for."""

    path: Mapping[str, str] = field(default_factory=dict)
    """The parameters in the page's path."""
    query: Mapping[str, str] = field(default_factory=dict)

    def number(self, name: str, default: int, most: int = 2**63 - 1) -> int:
        """Return a whole number of the query; ``default`` for anything else."""
        text = self.query.get(name, "")
        return min(int(text), most) if text.isascii() and text.isdecimal() and len(text) < 20 else default


@dataclass(frozen=True, slots=True)
class Proposal:
    """What a form would do: it is shown, and done by a second form."""

    words: str
    action: str
    """Of the second form; empty if it is not allowed."""
    fields: Mapping[str, str] = field(default_factory=dict)
    button: str = "Do it"


Action = Callable[[Site, Asked, Mapping[str, str]], "str | Proposal"]
"""Carries out a form, whose fields are the last argument; returns what it did, or would do.

Raises `RefusedError` if it cannot.
"""


@dataclass(frozen=True, slots=True)
class Page:
    """One page."""

    path: str
    """As Starlette has it: ``/topics/{topic}``."""
    title: str
    template: str
    data: Callable[[Site, Asked], Mapping[str, Any]]
    """Reads what the template shows; may raise `NoSuchThingError`, and any of `PROBLEMS`."""
    menu: str | None = None
    """Its name in the navigation, if it is there."""
    actions: Mapping[str, Action] = field(default_factory=dict)
    """What can be done by its forms, by the field ``action``."""
    interval_s: float = 0.2
    """The pause between two looks while somebody follows the page."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a long list, and where it is in the whole."""

    items: Sequence[Any]
    number: int
    """From 1."""
    last: int
    asked: Asked

    def link(self, number: int) -> str:
        """Return the address of another part."""
        return "?" + urlencode({**self.asked.query, "part": number})


def part(asked: Asked, items: Sequence[Any], size: int) -> Part:
    """Return the part of a list that the query asks for; the nearest one if there is no such part."""
    last = max(-(-len(items) // size), 1)
    number = min(max(asked.number("part", 1), 1), last)
    return Part(items[(number - 1) * size : number * size], number, last, asked)

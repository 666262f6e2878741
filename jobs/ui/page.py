"""A page of `sparkonce ui`: a path, a function that reads its data, and a template that shows it.

A page is one module in `pages/` and a template beside it. Its function is called in a thread, repeatedly while
the page is followed, and returns the template's variables; it only reads, and caches expensive results in the `Site`.
What a template puts into `{% call live("tr", id) %}` is updated separately (`rendering.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from sparkonce.jobs.ui.errors import NoSuchThingError, RefusedError
from sparkonce.jobs.ui.site import Site

__all__ = ["Action", "NoSuchThingError", "Page", "PageRequest", "Part", "Proposal", "RefusedError", "part"]


@dataclass(frozen=True, slots=True)
class PageRequest:
    """A request's parameters."""

    path: Mapping[str, str] = field(default_factory=dict)
    """The parameters in the page's path."""
    query: Mapping[str, str] = field(default_factory=dict)

    def number(self, name: str, default: int, most: int = 2**63 - 1) -> int:
        """Return an integer parameter of the query; ``default`` if it is not one."""
        text = self.query.get(name, "")
        return min(int(text), most) if text.isascii() and text.isdecimal() and len(text) < 20 else default


@dataclass(frozen=True, slots=True)
class Proposal:
    """The effect of a form: shown first, and executed by a second form."""

    words: str
    action: str
    """Of the second form; empty if not allowed."""
    fields: Mapping[str, str] = field(default_factory=dict)
    button: str = "Do it"


Action = Callable[[Site, PageRequest, Mapping[str, str]], "str | Proposal"]
"""Executes a form, whose fields are the last argument; returns the effect, done or proposed.

Raises `RefusedError` if it is rejected.
"""


@dataclass(frozen=True, slots=True)
class Page:
    """One page."""

    path: str
    """In Starlette's form: ``/topics/{topic}``."""
    title: str
    template: str
    data: Callable[[Site, PageRequest], Mapping[str, Any]]
    """Reads the template's variables; may raise `NoSuchThingError`, and any of `PROBLEMS`."""
    menu: str | None = None
    """Its name in the navigation, if any."""
    actions: Mapping[str, Action] = field(default_factory=dict)
    """The actions of its forms, by the field ``action``."""
    interval_s: float = 0.2
    """The interval of reads while the page is followed."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a long list, and its position in the list."""

    items: Sequence[Any]
    number: int
    """From 1."""
    last: int
    asked: PageRequest

    def link(self, number: int) -> str:
        """Return the address of another part."""
        return "?" + urlencode({**self.asked.query, "part": number})


def part(asked: PageRequest, items: Sequence[Any], size: int) -> Part:
    """Return the part of a list that the query requests; the nearest one if there is no such part."""
    last = max(-(-len(items) // size), 1)
    number = min(max(asked.number("part", 1), 1), last)
    return Part(items[(number - 1) * size : number * size], number, last, asked)

"""Pages as HTML, in separately updated parts.

A template puts changing content into `{% call live("tr", "an-id") %}…{% endcall %}`: an element with this id. A
rendered page is a frame with a placeholder for each part, and the parts. The difference of two renderings are the parts
that are not equal; if the frames differ, it is the whole page.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import shlex
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property, partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from sparkonce.jobs.shared.arguments import show_bytes
from sparkonce.jobs.shared.drawing import sparkline
from sparkonce.words import counted

HERE = Path(__file__).parent
ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]*")
_MARK = f"\0{secrets.token_hex(8)}\0"
"""Delimiters of a part's id in a frame: no text shown on a page can contain them."""
_PLACE = re.compile(f"{_MARK}({ID.pattern}){_MARK}")

_parts: ContextVar[dict[str, str] | None] = ContextVar("parts", default=None)


@dataclass(frozen=True)
class Rendered:
    """The main part of a page."""

    frame: str
    """HTML, with a delimited id in place of each part."""
    parts: Mapping[str, str] = field(default_factory=dict)
    """The HTML of the element with each id."""
    status: int = 200

    @cached_property
    def whole(self) -> str:
        """The HTML."""
        return _PLACE.sub(lambda found: self.parts[found[1]], self.frame)

    @cached_property
    def digest(self) -> str:
        """A digest of this content."""
        return hashlib.blake2b(self.whole.encode(), digest_size=12).hexdigest()

    def changed_since(self, before: Rendered) -> Mapping[str, str] | None:
        """Return the changed parts; None if the whole page must be replaced."""
        if before.frame != self.frame:
            return None
        return {name: html for name, html in self.parts.items() if before.parts[name] != html}


def _live(element: str, name: str, caller: Any, **attributes: str) -> Markup:
    """Render the content of `{% call live(…) %}` as an element, and store it as a part."""
    parts = _parts.get()
    assert parts is not None, "called by render"
    assert ID.fullmatch(name), f"{name!r} is not an id"
    assert name not in parts, f"id {name} is there twice"
    inner = caller()
    assert _MARK not in inner, f"part {name} has another part in it"
    listed = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"' for key, value in attributes.items() if value
    )
    parts[name] = f'<{element} id="{name}"{listed}>{inner}</{element}>'
    return Markup(f"{_MARK}{name}{_MARK}")  # noqa: S704 - only an id


def grouped(number: float | None, digits: int = 0) -> str:
    """Format a number with thousands separators; a dash for None."""
    return "\N{EN DASH}" if number is None else f"{number:,.{digits}f}".replace(",", "\u202f")


def amount(count: int, noun: str) -> str:
    """Format a number with its noun: "1 offset", "2 000 offsets"."""
    return counted(count, noun).replace(",", "\u202f")


def moment(ms: float | None) -> str:
    """Format milliseconds since 1970."""
    if ms is None or ms < 0:
        return "\N{EN DASH}"
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).isoformat(sep=" ", timespec="milliseconds").removesuffix("+00:00")
    except (OverflowError, ValueError):
        return f"{ms} ms"


def lasting(seconds: float | None) -> str:
    """Format a duration."""
    if seconds is None:
        return "\N{EN DASH}"
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size * 1.5:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"


def rate(per_second: float | None) -> str:
    """Format a rate, with a digit where it is small: it is 0 only where nothing comes."""
    return grouped(per_second, 1 if per_second and abs(per_second) < 10 else 0)


def took(seconds: float) -> str:
    """Format how long something took, in milliseconds below a second."""
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else lasting(seconds)


def _as_id(text: str) -> str:
    """Return an id for any text, to be used after a prefix: different texts have different ids."""
    return text if ID.fullmatch(text) else ":" + hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader([HERE / "pages"]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals |= {"live": _live, "sparkline": sparkline}
    made.filters |= {
        "amount": amount,
        "as_id": _as_id,
        "bytes": show_bytes,
        "grouped": grouped,
        "lasting": lasting,
        "in_path": partial(quote, safe=""),
        "moment": moment,
        "rate": rate,
        "shell": lambda text: shlex.quote(str(text)),
        "took": took,
    }
    return made


_ENVIRONMENT = _environment()


def render(template: str, data: Mapping[str, Any], status: int = 200) -> Rendered:
    """Render the main part of a page."""
    parts: dict[str, str] = {}
    token = _parts.set(parts)
    try:
        frame = _encodable(_ENVIRONMENT.get_template(template).render(data))
        return Rendered(frame, {name: _encodable(html) for name, html in parts.items()}, status)
    finally:
        _parts.reset(token)


def _encodable(html: str) -> str:
    """Return HTML that a response can hold: names of files that are not UTF-8 have escapes."""
    try:
        html.encode()
    except UnicodeEncodeError:
        return html.encode(errors="backslashreplace").decode()
    return html


def document(**values: Any) -> str:
    """Return a whole document of HTML around a main part."""
    return _ENVIRONMENT.get_template("layout.html").render(values)

"""The command `sparkonce options`: the reference of all options, on the terminal, or as JSON."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import textwrap
from collections.abc import Iterator
from itertools import groupby
from typing import TYPE_CHECKING

from sparkonce.jobs.shared.exit_status import GOOD, USAGE
from sparkonce.settings import Scope, Setting

if TYPE_CHECKING:
    from sparkonce.connectors.reference.tables import Reference

NARROWEST = 60
FORMATS = ("source", "kafka-sink", "delta-sink")
"""The names of the references; apart, since the command line is shown without loading them."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("format", nargs="?", choices=FORMATS, metavar="FORMAT", help="one of " + ", ".join(FORMATS))
    name = parser.add_argument(
        "name", nargs="?", metavar="NAME", help="one option, with kafka. or without; or how several begin"
    )
    name.completions = _names  # type: ignore[attr-defined]  # for `sparkonce completion`
    parser.add_argument("--json", action="store_true", help="for programs")


def _names() -> dict[str, list[str]]:
    """Return the names of all options, by format."""
    from sparkonce.connectors.reference.tables import REFERENCES

    return {each.name: sorted({entry.name for entry in each.entries()}) for each in REFERENCES.values()}


def run(options: argparse.Namespace) -> int:
    """Print the reference; return the exit status."""
    from sparkonce.connectors.reference.tables import REFERENCES

    wanted = [REFERENCES[options.format]] if options.format else list(REFERENCES.values())
    if options.name:
        return _one(wanted[0], options.name, as_json=options.json)
    if options.json:
        print(json.dumps({each.name: [_plain(entry) for entry in each.entries()] for each in wanted}, indent=1))
    else:
        width = max(NARROWEST, shutil.get_terminal_size((100, 24)).columns)
        print("\n".join(text(each, width) for each in wanted), end="")
    return GOOD


def _one(reference: Reference, name: str, *, as_json: bool) -> int:
    from sparkonce.connectors.reference.tables import is_used

    entry = reference.find(name)
    beginning = [each for each in reference.entries() if each.name.lower().startswith(name.lower())]
    if entry is None and beginning:
        print(
            json.dumps([_plain(each) for each in beginning], indent=1) + "\n" if as_json else _listed(beginning), end=""
        )
        return GOOD
    if entry is None:
        near = reference.nearest(name)
        hint = f"; did you mean {near}?" if near else f"; `sparkonce options {reference.name}` lists all"
        print(f"sparkonce options: {reference.name} has no option {name}{hint}", file=sys.stderr)
        return USAGE
    if as_json:
        print(json.dumps(_plain(entry), indent=1))
        return GOOD
    print(entry.name)
    print(_filled(f"{entry.group}: {entry.documentation}" if not is_used(entry) else entry.documentation, 100, 4))
    facts = {
        "value": entry.form,
        "default": entry.shown_default,
        "for": "" if entry.scope is Scope.BOTH else entry.scope,
        "": "the same in Spark's own connector" if entry.spark else "",
    }
    for fact, said in facts.items():
        if said:
            print(f"    {fact}: {said}" if fact else f"    {said}")
    return GOOD


def _listed(entries: list[Setting]) -> str:
    return "".join(f"{entry.name}\n{_filled(entry.documentation, 100, 4)}\n" for entry in entries)


def _plain(entry: Setting) -> dict[str, object]:
    from sparkonce.connectors.reference.tables import is_used

    return {
        "name": entry.name,
        "doc": entry.documentation,
        "group": entry.group,
        "value": entry.form,
        "words": entry.words,
        "default": entry.shown_default,
        "scope": entry.scope,
        "spark": entry.spark,
        "secret": entry.sensitive,
        "taken": is_used(entry),
    }


def text(reference: Reference, width: int) -> str:
    """Format the reference for a terminal of this width, in characters."""
    from sparkonce.connectors.reference.tables import REFUSED, WITHOUT_EFFECT

    lines = [f"{reference.title}: {reference.use.replace('`', '')}"]
    for group, entries in groups(reference):
        lines += ["", group]
        if group in (WITHOUT_EFFECT, REFUSED):
            for names, why in reasons(entries):
                lines += [_filled(", ".join(names), width, 2)]
                lines += [_filled(why, width, 6)]
            continue
        for entry in entries:
            head = f"{entry.name}={entry.form}" if entry.form else entry.name
            facts = "; ".join(
                filter(None, [f"default {entry.shown_default}" if entry.shown_default else "", scope(entry)])
            )
            lines.append(_filled(head + (f"  ({facts})" if facts else ""), width, 2))
            lines.append(_filled(entry.documentation, width, 6))
    return "\n".join(lines) + "\n"


def scope(entry: Setting) -> str:
    """Describe which queries an option is for, if not for all."""
    return "" if entry.scope is Scope.BOTH else f"{entry.scope} only"


def groups(reference: Reference) -> Iterator[tuple[str, list[Setting]]]:
    """Yield the entries by heading, in the order of each heading's first entry."""
    entries = reference.entries()
    order = list(dict.fromkeys(entry.group for entry in entries))
    for group, found in groupby(sorted(entries, key=lambda entry: order.index(entry.group)), lambda entry: entry.group):
        yield group or "Options", list(found)


def reasons(entries: list[Setting]) -> list[tuple[list[str], str]]:
    """Group names with the same reason."""
    reasons: dict[str, list[str]] = {}
    for entry in entries:
        reasons.setdefault(entry.documentation, []).append(entry.name)
    return [(names, why) for why, names in reasons.items()]


def _filled(said: str, width: int, margin: int) -> str:
    blanks = " " * margin
    return textwrap.fill(said, width, initial_indent=blanks, subsequent_indent=blanks, break_on_hyphens=False)

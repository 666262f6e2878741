"""The command `sparkonce options`: the reference of all options, on the terminal, as the docs hold it, or as JSON."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import textwrap
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from sparkonce.connectors.reference.tables import REFERENCES, REFUSED, WITHOUT_EFFECT, Reference, is_used
from sparkonce.jobs.cli.typed_options import typed_module
from sparkonce.jobs.shared.exit_status import GOOD, USAGE
from sparkonce.settings import Scope, Setting

NARROWEST = 60


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    names = {each.name: sorted({entry.name for entry in each.entries()}) for each in REFERENCES.values()}
    formats = list(REFERENCES)
    parser.add_argument("format", nargs="?", choices=formats, metavar="FORMAT", help="one of " + ", ".join(formats))
    name = parser.add_argument(
        "name", nargs="?", metavar="NAME", help="one option, with kafka. or without; or how several begin"
    )
    name.completions = names  # type: ignore[attr-defined]  # for `sparkonce completion`
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--markdown", action="store_true", help="the page of the docs")
    form.add_argument("--json", action="store_true", help="for programs")
    form.add_argument("--python", action="store_true", help="the module of typed dictionaries")
    form.add_argument(
        "--write",
        type=Path,
        metavar="CHECKOUT",
        help="make docs/options_*.md and connectors/reference/typed_options.py anew",
    )


def run(options: argparse.Namespace) -> int:
    """Print what is asked for; returns the exit status."""
    wanted = [REFERENCES[options.format]] if options.format else list(REFERENCES.values())
    if options.name:
        return _one(wanted[0], options.name, as_json=options.json)
    if options.json:
        print(json.dumps({each.name: [_plain(entry) for entry in each.entries()] for each in wanted}, indent=1))
    elif options.python:
        print(typed_module(), end="")
    elif options.write:
        _write(options.write)
    elif options.markdown:
        print("\n".join(markdown(each) for each in wanted), end="")
    else:
        width = max(NARROWEST, shutil.get_terminal_size((100, 24)).columns)
        print("\n".join(text(each, width) for each in wanted), end="")
    return GOOD


def _write(checkout: Path) -> None:
    for each in REFERENCES.values():
        (checkout / "docs" / each.page).write_text(markdown(each))
    (checkout / "connectors" / "reference" / "typed_options.py").write_text(typed_module())


def _one(reference: Reference, name: str, *, as_json: bool) -> int:
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
    """Write the reference for a terminal of this width, in characters."""
    lines = [f"{reference.title}: {reference.use.replace('`', '')}"]
    for group, entries in _groups(reference):
        lines += ["", group]
        if group in (WITHOUT_EFFECT, REFUSED):
            for names, why in _reasons(entries):
                lines += [_filled(", ".join(names), width, 2)]
                lines += [_filled(why, width, 6)]
            continue
        for entry in entries:
            head = f"{entry.name}={entry.form}" if entry.form else entry.name
            facts = "; ".join(
                filter(None, [f"default {entry.shown_default}" if entry.shown_default else "", _scope(entry)])
            )
            lines.append(_filled(head + (f"  ({facts})" if facts else ""), width, 2))
            lines.append(_filled(entry.documentation, width, 6))
    return "\n".join(lines) + "\n"


def markdown(reference: Reference) -> str:
    """Write the reference as its page in the docs."""
    name = reference.name
    lines = [
        f"# {reference.title}",
        "",
        _paragraph(
            f"For {reference.use}. This page is made from the declarations in the code, by `sparkonce options {name} "
            f"--markdown`; `sparkonce options {name} NAME` shows one of them in the terminal."
        ),
        "",
        _paragraph(
            "Names are compared without case. A name that is not here is an error, which tells the nearest one. An "
            "option marked S is one of Spark's own connector, with the same meaning. No message and no log shows the "
            "text of one that is marked *secret*, nor does a plan in a session of `sparkonce.spark_session`."
        ),
    ]
    if reference.note:
        lines += ["", _paragraph(reference.note)]
    for group, entries in _groups(reference):
        lines += ["", f"## {group}", ""]
        if group in (WITHOUT_EFFECT, REFUSED):
            lines += [
                "These change nothing here, and are taken without a word." if group == WITHOUT_EFFECT else _REFUSING
            ]
            lines += ["", f"| setting | {'why' if group == WITHOUT_EFFECT else 'instead'} |", "|---|---|"]
            for names, why in _reasons(entries):
                lines.append(f"| {', '.join(f'`{name}`' for name in names)} | {_cell(why)} |")
            continue
        lines += _table(entries)
    return "\n".join(lines) + "\n"


_REFUSING = "Each is an error that says what to use instead, before anything is read or written."


def _table(entries: list[Setting]) -> list[str]:
    """Write a table of the columns that are not empty."""
    columns = {
        "option": [f"`{entry.name}`" for entry in entries],
        "value": [f"`{entry.form}`" if entry.form else "" for entry in entries],
        "default": [_default(entry) for entry in entries],
        "for": [_scope(entry) for entry in entries],
        "": ["S" if entry.spark else "" for entry in entries],
        "meaning": [f"{entry.documentation} *secret*" if entry.sensitive else entry.documentation for entry in entries],
    }
    kept = {heading: cells for heading, cells in columns.items() if any(cells)}
    rows = [kept, ["---"] * len(kept), *([_cell(cell) for cell in row] for row in zip(*kept.values(), strict=True))]
    return ["| " + " | ".join(row) + " |" for row in rows]


def _default(entry: Setting) -> str:
    plain = entry.shown_default in ("", "required", "none") or " " in entry.shown_default
    return entry.shown_default if plain else f"`{entry.shown_default}`"


def _scope(entry: Setting) -> str:
    return "" if entry.scope is Scope.BOTH else f"{entry.scope} only"


def _cell(written: str) -> str:
    return written.replace("|", "\\|")


def _groups(reference: Reference) -> Iterator[tuple[str, list[Setting]]]:
    """Yield the entries under their headings, in the order in which the headings first come."""
    entries = reference.entries()
    order = list(dict.fromkeys(entry.group for entry in entries))
    for group, found in groupby(sorted(entries, key=lambda entry: order.index(entry.group)), lambda entry: entry.group):
        yield group or "Options", list(found)


def _reasons(entries: list[Setting]) -> list[tuple[list[str], str]]:
    reasons: dict[str, list[str]] = {}
    for entry in entries:
        reasons.setdefault(entry.documentation, []).append(entry.name)
    return [(names, why) for why, names in reasons.items()]


def _paragraph(said: str) -> str:
    return textwrap.fill(said, 130, break_on_hyphens=False, break_long_words=False)


def _filled(said: str, width: int, margin: int) -> str:
    blanks = " " * margin
    return textwrap.fill(said, width, initial_indent=blanks, subsequent_indent=blanks, break_on_hyphens=False)

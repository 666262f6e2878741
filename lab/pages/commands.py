"""docs/commands.md: every command of `sparkonce` with its arguments, from the declarations of `--help`."""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Iterator

_HEAD = """\
# Commands

<!-- Generated from the code: python -m lab.pages . -->

`sparkonce COMMAND --help` prints the same for one command. Where the environment is not activated,
`python -m sparkonce` is the same command. `sparkonce completion` is for bash and zsh.
"""


def markdown(parser: argparse.ArgumentParser) -> str:
    """Return the page for the parser of all commands."""
    blocks = [_HEAD]
    for name, help_text, child in _children(parser):
        blocks += _command(f"sparkonce {name}", help_text, child, 2)
    return "\n".join(block for block in blocks if block)


def _command(name: str, help_text: str, parser: argparse.ArgumentParser, level: int) -> Iterator[str]:
    yield f"{'#' * level} {name}\n"
    yield _sentence(parser.description or help_text)
    rows = "".join(_row(parser, action) for action in _arguments(parser))
    yield f"| argument | what it is |\n|---|---|\n{rows}" if rows else ""
    if parser.formatter_class is argparse.RawDescriptionHelpFormatter and parser.epilog:
        yield f"```text\n{inspect.cleandoc(parser.epilog)}\n```\n"
    else:
        yield _sentence(parser.epilog or "")
    for child, of_it, child_parser in _children(parser):
        yield from _command(f"{name} {child}", of_it, child_parser, level + 1)


def _children(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str, argparse.ArgumentParser]]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for each in action._choices_actions:
                yield each.dest, each.help or "", action.choices[each.dest]


def _arguments(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:
        hidden = action.help == argparse.SUPPRESS
        if not hidden and not isinstance(action, argparse._HelpAction | argparse._SubParsersAction):
            yield action


def _row(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    text = parser._get_formatter()._expand_help(action) if action.help else ""
    if action.required and action.option_strings:
        text = f"{text} (required)".strip()
    return f"| `{_name(action)}` | {_cell(text)} |\n"


def _name(action: argparse.Action) -> str:
    metavar = action.metavar
    if isinstance(metavar, tuple):
        metavar = " ".join(metavar)
    if metavar is None and action.choices is not None:
        metavar = "|".join(map(str, action.choices))
    if not action.option_strings:
        return _escaped(metavar or action.dest)
    value = "" if action.nargs == 0 else " " + (metavar or action.dest.upper())
    return _escaped(", ".join(action.option_strings) + value)


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")


def _cell(text: str) -> str:
    return _escaped(" ".join(text.split())).replace("<", "&lt;")


def _sentence(text: str) -> str:
    text = " ".join(inspect.cleandoc(text).split()).replace("<", "&lt;")
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith('.') else '.'}\n" if text else ""

"""The command `python -m lab.pages CHECKOUT`: write every file that is generated from declarations in the code."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from lab.pages import broker_settings, commands, errors, options, python_api
from lab.pages.typed_options import typed_module
from sparkonce.connectors.reference.tables import REFERENCES
from sparkonce.jobs.cli.main import whole_parser

MADE: Mapping[str, Callable[[], str]] = {
    "connectors/reference/typed_options.py": typed_module,
    "docs/broker_settings.md": broker_settings.markdown,
    "docs/commands.md": lambda: commands.markdown(whole_parser()),
    "docs/errors.md": errors.markdown,
    "docs/python_api.md": python_api.markdown,
    **{f"docs/{each.page}": partial(options.markdown, each) for each in REFERENCES.values()},
}
"""Paths in the checkout, and the functions that generate their contents."""


def main(arguments: Sequence[str]) -> int:
    """Write all of them; return the exit status."""
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print("usage: python -m lab.pages CHECKOUT", file=sys.stderr)
        return 2
    for path, make in MADE.items():
        (Path(arguments[0]) / path).write_text(make())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

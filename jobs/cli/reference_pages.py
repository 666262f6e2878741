"""Every file that is generated from declarations in the code: `sparkonce options --write CHECKOUT` writes all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from sparkonce.broker_lite import settings_page
from sparkonce.connectors.reference.tables import REFERENCES
from sparkonce.jobs.cli import commands_page, errors_page, options_page, python_page
from sparkonce.jobs.cli.main import whole_parser
from sparkonce.jobs.cli.typed_options import typed_module

MADE: Mapping[str, Callable[[], str]] = {
    "connectors/reference/typed_options.py": typed_module,
    "docs/broker_settings.md": settings_page.markdown,
    "docs/commands.md": lambda: commands_page.markdown(whole_parser()),
    "docs/errors.md": errors_page.markdown,
    "docs/python_api.md": python_page.markdown,
    **{f"docs/{each.page}": partial(options_page.markdown, each) for each in REFERENCES.values()},
}
"""Paths in the checkout, and the functions that generate their contents."""


def write_all(checkout: Path) -> None:
    """Write all of them."""
    for path, make in MADE.items():
        (checkout / path).write_text(make())

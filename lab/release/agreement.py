"""The version, as `pyproject.toml`, the changelog and SECURITY.md say it, which must agree."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

UNRELEASED = "unreleased"
_HEADING = re.compile(r"^## (\S+) \((\d{4}-\d{2}-\d{2}|unreleased)\)$", re.MULTILINE)


class ReleaseError(RuntimeError):
    """What keeps a release from being made; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Version:
    """The version of a checkout."""

    number: str
    date: str
    """When it was released, or `UNRELEASED`."""

    @property
    def tag(self) -> str:
        """The name of its tag."""
        return f"v{self.number}"


def version_of(project: Path) -> Version:
    """Return the version of a checkout.

    Raises:
        ReleaseError: if its files do not agree.
    """
    number = str(tomllib.loads((project / "pyproject.toml").read_text())["project"]["version"])
    newest = _HEADING.search((project / "CHANGELOG.md").read_text())
    if newest is None or newest[1] != number:
        found = "no section" if newest is None else f"{newest[1]} first"
        raise ReleaseError(
            f"pyproject.toml has version {number}, and CHANGELOG.md has {found}: begin it with a section "
            f"'## {number} ({UNRELEASED})' or '## {number} (YYYY-MM-DD)'"
        )
    series = ".".join(number.split(".")[:2])
    if f"| {series} | yes |" not in (project / "SECURITY.md").read_text():
        raise ReleaseError(f"SECURITY.md does not say that {series} gets fixes: add it to the table there")
    return Version(number, newest[2])

"""The packages that a release brings with it, as a CycloneDX bill of materials, and their licences."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from lab.release.agreement import ReleaseError

REVIEWED = {
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "LGPL-2.1-or-later",
    "MIT",
    "MPL-2.0",
    "PSF-2.0",
    "Python-2.0",
    "Unlicense",
    "Zlib",
}
"""Licences, by their SPDX names, of packages that a program of any licence may import."""


def licences_of(bill: Path) -> list[tuple[str, str, str]]:
    """Return name, version and licence of each package of a bill.

    Raises:
        ReleaseError: for a package that names no licence.
    """
    components = json.loads(bill.read_text()).get("components", [])
    found = sorted((each["name"], each["version"], " AND ".join(sorted(set(_licences(each))))) for each in components)
    unnamed = [name for name, _, licence in found if not licence]
    if unnamed:
        raise ReleaseError(
            f"{', '.join(unnamed)}: the package names no licence: look it up, and leave it out or pin it"
        )
    return found


def unreviewed(licence: str) -> bool:
    """Whether somebody has to look at a licence: it is not one of those that are known to be harmless."""
    return not all(part.strip("() ") in REVIEWED for part in licence.replace(" OR ", " AND ").split(" AND "))


def table(packages: list[tuple[str, str, str]]) -> str:
    """Return a table of packages in Markdown."""
    lines = [f"| {name} | {version} | {licence} |" for name, version, licence in packages]
    return "\n".join(["| package | version | licence |", "|---|---|---|", *lines, ""])


def _licences(component: Mapping[str, Any]) -> Iterator[str]:
    """Yield licences: SPDX names and expressions if there are any, else what the package's metadata has for a name."""
    named = [each.get("expression") or each.get("license", {}).get("id") for each in component.get("licenses", [])]
    others = [each.get("license", {}).get("name") for each in component.get("licenses", [])]
    yield from filter(None, named if any(named) else others)

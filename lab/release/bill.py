"""The packages that a release brings with it, as a CycloneDX bill of materials, and their licences."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lab.release.agreement import ReleaseError

REVIEWED = {
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "CC0-1.0",
    "ISC",
    "LGPL-2.1-or-later",
    "License :: OSI Approved :: Apache Software License",
    "License :: OSI Approved :: BSD License",
    "MIT",
    "MIT-0",
    "MPL-2.0",
    "PSF-2.0",
    "Python-2.0",
    "Unlicense",
    "Zlib",
}
"""Licences, by their SPDX names or classifiers, of packages that a program of any licence may import."""

NAMED_IN_FILES = {"protobuf": "BSD-3-Clause"}
"""Of packages whose metadata names none: what the licence is that their files have."""


def licences_of(bill: Path) -> list[tuple[str, str, str]]:
    """Return name, version and licence of each package of a bill.

    Raises:
        ReleaseError: for a package that names no licence.
    """
    components = json.loads(bill.read_text()).get("components", [])
    found = sorted((each["name"], each["version"], _licence(each)) for each in components)
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


def _licence(component: Mapping[str, Any]) -> str:
    """Return SPDX names and expressions if there are any, else what the package's metadata has for a name."""
    given = component.get("licenses", [])
    named = {each.get("expression") or each.get("license", {}).get("id") for each in given} - {None}
    others = {each.get("license", {}).get("name") for each in given} - {None}
    found = named | {each for each in others if not (named and each.startswith("License :: "))}
    return " AND ".join(sorted(found)) or NAMED_IN_FILES.get(component["name"], "")

"""docs/versions.md names what the distribution accepts."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
PAGE = (PROJECT / "docs" / "versions.md").read_text()
METADATA = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]


def supported(name: str) -> str:
    row = next(line for line in PAGE.splitlines() if line.startswith(f"| {name} |"))
    return row.split("|")[2].strip()


def test_spark() -> None:
    (accepted,) = (each for each in METADATA["optional-dependencies"]["spark"] if each.startswith("pyspark"))
    least, below = re.fullmatch(r"pyspark>=([0-9.]+),<([0-9.]+)", accepted).groups()  # type: ignore[union-attr]
    oldest, newest = re.fullmatch(r"([0-9.]+) and ([0-9.]+)", supported("Spark")).groups()  # type: ignore[union-attr]
    assert oldest == least
    assert f"{newest.split('.')[0]}.{int(newest.split('.')[1]) + 1}" == below


def test_python() -> None:
    least, newest = re.fullmatch(r"([0-9.]+) to ([0-9.]+)", supported("Python")).groups()  # type: ignore[union-attr]
    assert METADATA["requires-python"] == f">={least}"
    named = [each.rsplit(" ")[-1] for each in METADATA["classifiers"] if "Python :: 3." in each]
    assert (named[0], named[-1]) == (least, newest)

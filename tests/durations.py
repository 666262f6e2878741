"""How long each file of `make test` takes.

    make durations

runs `make test` and writes durations.md beside this file. xdist begins with the longest files by this table, and
`make quick` fills its two minutes by it.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree

PROJECT = Path(__file__).resolve().parents[1]
TABLE = Path(__file__).with_name("durations.md")
LEAST_S = 1.0
"""Shorter files are one row together."""
_ROW = re.compile(r"\| (tests/\S+\.py) \| \d+ \| ([\d.]+) \|")


def known_seconds() -> dict[str, float]:
    """Return the seconds of each file that the table has: all those that take `LEAST_S` or longer."""
    return {file: float(seconds) for file, seconds in _ROW.findall(TABLE.read_text())} if TABLE.is_file() else {}


def read_report(path: Path) -> tuple[Counter[str], dict[str, float]]:
    """Return how many cases each file has and how many seconds they take, from pytest's XML with `xunit1`."""
    cases, seconds = Counter[str](), dict[str, float]()
    for case in ElementTree.parse(path).iter("testcase"):
        file = case.attrib["file"]
        cases[file] += 1
        seconds[file] = seconds.get(file, 0.0) + float(case.attrib["time"])
    return cases, seconds


def page(cases: Mapping[str, int], seconds: Mapping[str, float], cpu_s: float, wall_s: float) -> str:
    """Return the table, the longest files first."""
    listed = sorted((file for file in cases if seconds[file] >= LEAST_S), key=lambda file: -seconds[file])
    short = [file for file in cases if seconds[file] < LEAST_S]
    rows = [f"| {file} | {cases[file]} | {seconds[file]:.1f} |" for file in listed]
    others = (
        f"| {len(short)} others | {sum(cases[file] for file in short)} | {sum(seconds[file] for file in short):.1f} |"
    )
    return "\n".join(
        [
            "# How long `make test` takes",
            "",
            "Written by `make durations`. Seconds are those of one of three processes on two cores, set-up of shared",
            "sessions included.",
            "",
            f"{len(cases)} files, {sum(cases.values())} cases: {wall_s:.0f} s, {cpu_s:.0f} s of CPU.",
            "",
            "| file | cases | seconds |",
            "|---|---:|---:|",
            *rows,
            others,
            "",
        ]
    )


def main() -> int:
    """Run `make test` and write the table; returns the exit code of the tests."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        options = f"--junitxml={report} -o junit_family=xunit1"
        began_s, before = time.monotonic(), os.times()
        done = subprocess.run(["make", "test"], cwd=PROJECT, env={**os.environ, "PYTEST_ADDOPTS": options}, check=False)
        after = os.times()
        if not report.is_file():
            return done.returncode or 1
        cpu_s = after.children_user + after.children_system - before.children_user - before.children_system
        TABLE.write_text(page(*read_report(report), cpu_s, time.monotonic() - began_s))
    print(f"wrote {TABLE.relative_to(PROJECT)}")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())

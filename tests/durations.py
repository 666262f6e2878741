"""How long each file of `make test` and `make lab` takes.

    make durations [TIER=lab]

runs `make test`, or the tier that is named, and writes its table into durations.md beside this file. xdist begins with
the longest files by these tables, and `make quick` fills its two minutes by them.
"""

from __future__ import annotations

import argparse
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
TIERS = ("test", "lab")
LEAST_S = 1.0
"""Shorter files are one row together."""
_HEAD = """# How long tests take

Written by `make durations`. The tests ran in three processes on two cores; the seconds of a file are those within its
process, the set-up of a session that it shares included if it came first.
"""
_ROW = re.compile(r"\| (tests/\S+\.py) \| \d+ \| ([\d.]+) \|")


def sections() -> dict[str, str]:
    """Return the text of each tier's table, with its title."""
    text = TABLE.read_text() if TABLE.is_file() else ""
    parts = re.split(r"^(?=## `make )", text, flags=re.MULTILINE)[1:]
    return {part.split("`")[1].split()[1]: part for part in parts}


def known_seconds(tier: str = "test") -> dict[str, float]:
    """Return the seconds of each file that a tier's table has: those that take `LEAST_S` or longer, and are there."""
    rows = _ROW.findall(sections().get(tier, ""))
    return {file: float(seconds) for file, seconds in rows if (PROJECT / file).is_file()}


def read_report(path: Path) -> tuple[Counter[str], dict[str, float]]:
    """Return how many cases each file has and how many seconds they take, from pytest's XML with `xunit1`."""
    cases, seconds = Counter[str](), dict[str, float]()
    for case in ElementTree.parse(path).iter("testcase"):
        file = case.attrib["file"]
        cases[file] += 1
        seconds[file] = seconds.get(file, 0.0) + float(case.attrib["time"])
    return cases, seconds


def section(tier: str, cases: Mapping[str, int], seconds: Mapping[str, float], cpu_s: float, wall_s: float) -> str:
    """Return a tier's table, the longest files first, with its title."""
    listed = sorted((file for file in cases if seconds[file] >= LEAST_S), key=lambda file: -seconds[file])
    short = [file for file in cases if seconds[file] < LEAST_S]
    rows = [f"| {file} | {cases[file]} | {seconds[file]:.1f} |" for file in listed]
    others = (
        f"| {len(short)} others | {sum(cases[file] for file in short)} | {sum(seconds[file] for file in short):.1f} |"
    )
    took = f"{len(cases)} files, {sum(cases.values())} cases: {wall_s:.0f} s, {cpu_s:.0f} s of CPU."
    head = [f"## `make {tier}`", "", took, "", "| file | cases | seconds |", "|---|---:|---:|"]
    return "\n".join([*head, *rows, others, ""])


def write(tier: str, table: str) -> None:
    """Put a tier's table in place of its last one."""
    tables = {**sections(), tier: table}
    TABLE.write_text("\n".join([_HEAD, *(tables[name].rstrip() + "\n" for name in TIERS if name in tables)]))


def main() -> int:
    """Run a tier, and write its table if it passes; returns the exit code of its tests."""
    parser = argparse.ArgumentParser(prog="python -m tests.durations", description=__doc__)
    parser.add_argument("tier", nargs="?", choices=TIERS, default="test")
    tier = parser.parse_args().tier
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        options = f"--junitxml={report} -o junit_family=xunit1"
        began_s, before = time.monotonic(), os.times()
        done = subprocess.run(["make", tier], cwd=PROJECT, env={**os.environ, "PYTEST_ADDOPTS": options}, check=False)
        after = os.times()
        if done.returncode:
            print(f"{TABLE.relative_to(PROJECT)} stays as it was: make {tier} has failed", file=sys.stderr)
            return done.returncode
        cpu_s = after.children_user + after.children_system - before.children_user - before.children_system
        write(tier, section(tier, *read_report(report), cpu_s, time.monotonic() - began_s))
    print(f"wrote {TABLE.relative_to(PROJECT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

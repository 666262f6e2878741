"""Runs that have no end, in parts that can be resumed.

    make soak [PARTS="sim/test_seeds lab/verify/test_larger_choices"] [LIST=1]

A part is one test file: its tests that are marked `soak` or, as `properties/…`, new examples of its properties. The
result of each is kept in soak.md beside this file. A part that has passed on the product as it is now is not run again,
unless it is named.
"""

from __future__ import annotations

import argparse
import datetime
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.quick import FORMATS, NO_TESTS, PRODUCT, PROJECT

TESTS = PROJECT / "tests"
RESULTS = TESTS / "soak.md"
PROPERTIES = "properties/"
EXAMPLES = "20"
"""How many times as many examples of each property as in `make test`."""
CHANGED = "+"
"""Ends a version with changes that are not committed."""
SOURCES = (*PRODUCT, "sparkonce", "lab", *FORMATS, "constraints.txt")
_HEAD = """# What `make soak` has found

Written by `make soak`. The version is git's tree of the product that the part ran on, with `+` if that was changed.

| part | result | tests | seconds | day | version |
|---|---|---|---:|---|---|
"""
_ROW = re.compile(r"^\| (\S+/\S+) \| (\w+) \| (.*) \| (\d+) \| (\S+) \| (\S+) \|$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a part."""

    part: str
    outcome: str
    tests: str
    seconds: int
    day: str
    version: str

    @property
    def row(self) -> str:
        """The row of the table."""
        return f"| {self.part} | {self.outcome} | {self.tests} | {self.seconds} | {self.day} | {self.version} |"


def parts() -> Iterator[str]:
    """Yield the names of all parts."""
    for path in sorted(TESTS.rglob("test_*.py")):
        name, text = path.relative_to(TESTS).with_suffix("").as_posix(), path.read_text()
        if "mark.soak" in text:
            yield name
        if re.search(r"^\s*@given\(|RuleBasedStateMachine\)", text, re.MULTILINE):
            yield PROPERTIES + name


def version() -> str:
    """Return an abbreviated hash of the product's sources as they were committed, with `+` if they differ now."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=PROJECT, capture_output=True, text=True, check=True).stdout

    tree = git("ls-tree", "HEAD", *SOURCES)
    digest = subprocess.run(
        ["git", "hash-object", "--stdin"], cwd=PROJECT, input=tree, capture_output=True, text=True, check=True
    ).stdout[:8]
    return digest + (CHANGED if git("status", "--porcelain", "--", *SOURCES) else "")


def known() -> dict[str, Result]:
    """Return the results that are kept."""
    text = RESULTS.read_text() if RESULTS.is_file() else ""
    return {
        part: Result(part, outcome, tests, int(seconds), day, on)
        for part, outcome, tests, seconds, day, on in _ROW.findall(text)
    }


def keep(result: Result) -> None:
    """Put a result into the table, in place of the last one of its part."""
    results = {**known(), result.part: result}
    RESULTS.write_text(_HEAD + "".join(results[part].row + "\n" for part in sorted(results)))


def outcome_of(code: int, tests: str) -> str:
    """Return `passed` if a test has run and none failed, `nothing` if none has run, else `failed`."""
    if code not in (0, NO_TESTS):
        return "failed"
    return "passed" if re.search(r"\b[1-9]\d* passed", tests) else "nothing"


def run(part: str) -> Result:
    """Run a part, with its output on the terminal."""
    path = f"tests/{part.removeprefix(PROPERTIES)}.py"
    environment, marks = dict(os.environ), "soak"
    words = ["--timeout", "14400"]
    if part.startswith(PROPERTIES):
        environment["EXAMPLES"], marks = EXAMPLES, "hypothesis and not soak"
    began_s, on, lines = time.monotonic(), version(), [""]
    command = [sys.executable, "-m", "pytest", "-q", "-m", marks, *words, path]
    with subprocess.Popen(command, cwd=PROJECT, env=environment, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        for line in running.stdout:
            print(line, end="", flush=True)
            lines.append(line.strip() or lines[-1])
    tests = re.sub(r" in [\d.]+s.*|=+ ?", "", lines[-1]).replace("|", "/")
    outcome = outcome_of(running.returncode, tests)
    day = datetime.datetime.now(datetime.UTC).date().isoformat()
    return Result(part, outcome, tests, round(time.monotonic() - began_s), day, on)


def main() -> int:
    """Run the parts that are named, or those that have not passed; returns 1 if one fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help="these parts, whether they have passed or not")
    parser.add_argument("--list", action="store_true", help="print the parts and what is known of them, and run none")
    options = parser.parse_args()
    every, results, present = list(parts()), known(), version()
    if unknown := [part for part in options.parts if part not in every]:
        near = [part for part in every if part.endswith("/" + Path(unknown[0]).stem)]
        hint = f"did you mean {' or '.join(near)}?" if near else "make soak LIST=1 prints all"
        print(f"no part is named {unknown[0]}; {hint}", file=sys.stderr)
        return 2
    passed = {part for part, result in results.items() if result.outcome == "passed" and result.version == present}
    if present.endswith(CHANGED):  # with other changes than when the part ran, maybe
        passed.clear()
    left = options.parts or [part for part in every if part not in passed]
    if options.list:
        for part in options.parts or every:
            print(results[part].row if part in results else f"| {part} | not run |")
        return 0
    failed = []
    for number, part in enumerate(left, 1):
        print(f"[{number}/{len(left)}] {part}", flush=True)
        result = run(part)
        keep(result)
        failed += [part] if result.outcome == "failed" else []
    print(f"RESULT parts={len(left)} failed={len(failed)}" + "".join(f"\nfailed: {part}" for part in failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

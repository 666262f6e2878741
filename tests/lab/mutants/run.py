"""Put each mutant of mutants.tsv into a copy of the checkout, and see whether tests find it.

The tests are those of `make quick` that fit into a minute.

    python -m tests.lab.mutants.run [--jobs 2] [--only NUMBER ...] [--write]

A mutant is found if a test fails, or none ends in time. `--write` keeps the results in mutants.md beside this file.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

from lab.child_process import kill_session
from tests.quick import NO_TESTS, select

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parents[2]
BUDGETS_S = (10.0, 60.0)
"""Of the tests that `make quick` selects, those that fit into this time: the nearest few first, and then the others."""
USAGE_ERROR = 4
"""pytest's exit code if its command line is wrong, which is no mutant's doing."""
LIMIT_S = 400.0
"""What takes longer, on a busy machine too, hangs."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """A line that is changed."""

    number: int
    file: str
    line: int
    before: str
    after: str

    def apply(self, root: Path) -> None:
        """Change the line.

        Raises:
            LookupError: if it is no longer there, or more than once and not where it was.
        """
        path = root / self.file
        lines = path.read_text().splitlines()
        places = [place for place, text in enumerate(lines) if text == self.before]
        if not places:
            raise LookupError(f"{self.file} has no line {self.before.strip()!r}: draw another mutant")
        lines[min(places, key=lambda place: abs(place + 1 - self.line))] = self.after
        path.write_text("\n".join(lines) + "\n")


def mutants() -> list[Mutant]:
    """Return the list."""
    rows = [row.split("\t") for row in (HERE / "mutants.tsv").read_text().splitlines()[1:]]
    return [Mutant(number, file, int(line), *texts) for number, (file, line, *texts) in enumerate(rows, 1)]


@contextmanager
def copies(count: int) -> Iterator[SimpleQueue[Path]]:
    """Yield copies of the checkout, as it is now."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=PROJECT, capture_output=True, text=True, check=True,
    ).stdout.splitlines()  # fmt: skip
    free = SimpleQueue[Path]()
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        for number in range(count):
            root = Path(folder) / str(number)
            for name in listed:
                if (PROJECT / name).exists():
                    (root / name).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(PROJECT / name, root / name, follow_symlinks=False)
            free.put(root)
        yield free


def first_failure(root: Path, tests: Sequence[str], without: Iterable[str]) -> str | None:
    """Run tests until one fails; returns its name, or None if none does.

    Raises:
        TimeoutExpired: if they do not end.
        RuntimeError: if pytest runs none.
    """
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-m", "not soak and not lab", *tests]
    command += [f"--deselect={name}" for name in without]
    with (root / "output").open("w") as output:
        running = subprocess.Popen(
            command, cwd=root, env={**os.environ, "PYTHONPATH": str(root)}, stdin=subprocess.DEVNULL,
            stdout=output, stderr=output, start_new_session=True,
        )  # fmt: skip
        try:
            code = running.wait(LIMIT_S)
        finally:
            kill_session(running.pid)
            running.wait()
    if code in (0, NO_TESTS):
        return None
    failed = re.findall(
        r"^(?:FAILED|ERROR) (tests/\S+?\.py(?:::.*?)?)(?: - |$)", (root / "output").read_text(), re.MULTILINE
    )
    if not failed and code == USAGE_ERROR:
        raise RuntimeError(f"pytest runs no test: {(root / 'output').read_text()[-1000:]}")
    return failed[0] if failed else f"pytest ended with {code}"


def is_red(root: Path, test: str) -> bool:
    """Whether a test fails without a mutant, too."""
    name = test.partition("[")[0]  # of all its parameters: names of parameters may hold anything
    return first_failure(root, [name], ()) is not None


def judge(mutant: Mutant, free: SimpleQueue[Path]) -> tuple[str, str, float]:
    """Return `found`, `survives` or `gone`, by which test, and after how many seconds.

    A test that fails without the mutant, too, finds nothing, and is left out.
    """
    root = free.get()
    path = root / mutant.file
    original, began_s = path.read_text(), time.monotonic()
    few, all_of_them = (select([Path(mutant.file)], budget_s)[0] for budget_s in BUDGETS_S)
    assert all_of_them, f"no test imports {mutant.file}"
    left = [few, [file for file in all_of_them if file not in few]]
    without = set[str]()
    outcome, by = "survives", ""
    try:
        while outcome == "survives" and left:
            mutant.apply(root)
            try:
                by = (first_failure(root, left[0], without) if left[0] else None) or ""
            finally:
                path.write_text(original)
            if not by:
                left.pop(0)
            elif by.startswith("tests/") and is_red(root, by):
                without.add(by.partition("[")[0])
            else:
                outcome = "found"
    except subprocess.TimeoutExpired:
        outcome, by = "found", "no end"
    except LookupError as error:
        outcome, by = "gone", str(error)
    free.put(root)
    return outcome, by, time.monotonic() - began_s


def main() -> int:
    """Judge the mutants; returns 1 if one is gone."""
    parser = argparse.ArgumentParser(prog="python -m tests.lab.mutants.run", description=__doc__)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", type=int, nargs="*", default=())
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    wanted = [each for each in mutants() if not options.only or each.number in options.only]
    rows, counts = [], {"found": 0, "survives": 0, "gone": 0}
    with copies(options.jobs) as free, ThreadPoolExecutor(options.jobs) as pool:
        for mutant, (outcome, by, seconds) in zip(
            wanted, pool.map(lambda each: judge(each, free), wanted), strict=True
        ):
            counts[outcome] += 1
            print(f"{mutant.number} {outcome} {seconds:.0f} s {mutant.file}:{mutant.line} {by}", flush=True)
            text = mutant.after.strip().replace("|", "\\|")
            rows.append(f"| {mutant.number} | {mutant.file}:{mutant.line} | `{text}` | {outcome} | {by} |")
    result = f"RESULT mutants={len(wanted)} " + " ".join(f"{name}={count}" for name, count in counts.items())
    print(result)
    if options.write:
        head = f"# Mutants\n\nWritten by `python -m tests.lab.mutants.run --write`: {result}\n\n"
        table = "| | where | becomes | | by |\n|---|---|---|---|---|\n"
        (HERE / "mutants.md").write_text(head + table + "\n".join(rows) + "\n")
    return 1 if counts["gone"] else 0


if __name__ == "__main__":
    sys.exit(main())

"""The tests that a change is likely to break, in about two minutes.

    make quick [SINCE=revision] [LIST=1]

takes the files that differ from the last commit (or, if none do, those of the last commit) and follows imports back to
the test files: nearest first, until two minutes are full by the table of durations. `make test` remains the judge: what
tests drive through the command line, Spark or a socket is not seen by imports.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

from sparkonce import _WHERE as WHERE
from tests.durations import known_seconds

PROJECT = Path(__file__).resolve().parents[1]
PRODUCT = ("broker_lite", "connectors", "exactly_once", "jobs", "offset_store", "registry_lite")
LABORATORY = ("lab.",)
FORMATS = ("pyspark_delta_once", "pyspark_kafka_once")
FIXTURES = {"spark": FORMATS, "kafka_broker": ("sparkonce.broker_lite.embedded",)}
"""What tests have without an import, by a word in them: Spark finds the formats by their names."""
LAZY = {name: f"sparkonce.{module}" for name, module in WHERE.items()}
"""Where the names are that users import from ``sparkonce``."""
BUDGET_S = 180.0
"""Of two processes on two cores, so 90 s and their starts."""
SHORT_S = 0.5
"""What a file takes that is too short for the table."""
FOLDER = re.compile(r"sparkonce(\.\w+){2,}\.")
"""How the name of a module begins whose end is worked out."""
NO_TESTS = 5
"""pytest's exit code where nothing was collected."""
RESULTS = frozenset({Path("tests/durations.md"), Path("tests/soak.md")})
"""What runs of tests write: not a change to be tested."""
WEB = frozenset({".html", ".js", ".css"})


def module_of(path: Path) -> str:
    """Return the name by which a file of the project is imported."""
    parts = list(path.with_suffix("").parts)
    if parts[0] in PRODUCT:
        parts.insert(0, "sparkonce")
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def sources() -> Mapping[str, Path]:
    """Return all modules of the project and its tests, with their files relative to the project."""
    roots = (*PRODUCT, *FORMATS, "sparkonce/kafka", "lab", "tests")
    paths = [path.relative_to(PROJECT) for root in roots for path in (PROJECT / root).rglob("*.py")]
    paths += [path.relative_to(PROJECT) for path in (PROJECT / "sparkonce").glob("*.py")]
    return {module_of(path): path for path in paths}


def imports_of(path: Path, known: Mapping[str, Path]) -> Iterator[str]:
    """Yield every name that a file imports: in functions, by a text that names a module, and by pytest, too."""
    text = (PROJECT / path).read_text()
    try:
        tree = ast.parse(text)
    except SyntaxError:  # pytest says where
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = ".".join([*path.parts[: -node.level], *([node.module] if node.module else [])])
            origin = package if node.level else node.module
            yield from (f"{origin}.{alias.name}" for alias in node.names)
            if origin == "sparkonce":
                yield from (LAZY.get(alias.name, "") for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and "." in node.value:
            yield from {node.value, f"sparkonce.{node.value}"} & known.keys()
        elif isinstance(node, ast.JoinedStr) and FOLDER.fullmatch(folder := ast.unparse(node)[2:].partition("{")[0]):
            yield from (name for name in known if name.startswith(folder))
    around = module_of(path).split(".")[:-1]
    yield from (".".join(around[:count]) for count in range(2, len(around) + 1))  # their `__init__` runs first
    if path.parts[0] == "tests":
        yield from (".".join([*folder.parts, "conftest"]) for folder in path.parents)
        yield from (name for word, names in FIXTURES.items() if re.search(rf"\b{word}\b", text) for name in names)


@cache
def importers(gone: frozenset[str] = frozenset()) -> Mapping[str, set[str]]:
    """Return the modules that import each module, those in ``gone`` too, which are no longer there.

    What users import from ``sparkonce`` is an import of the module that has it: else everything would be near
    everything. For the same reason what `tests/conftest.py` imports is not near to all tests.
    """
    known = sources()
    found: dict[str, set[str]] = defaultdict(set)
    for module, path in known.items():
        if module in ("sparkonce", "tests.conftest"):
            continue
        for name in imports_of(path, known):
            for target in (name, name.rpartition(".")[0]):
                if target in known or target in gone:
                    found[target].add(module)
                    break
    return found


def distances(changed: Iterable[str], found: Mapping[str, set[str]]) -> dict[str, int]:
    """Return how many imports away each module is from what changed."""
    near = dict.fromkeys(changed, 0)
    edge = list(near)
    while edge:
        following = []
        for module in edge:
            for other in found.get(module, ()):
                if other not in near:
                    near[other] = near[module] + 1
                    following.append(other)
        edge = following
    return near


def changed_files(since: str | None) -> tuple[list[Path], str]:
    """Return the files that differ from a revision, and its name: by default the last commit, or the one before it.

    Raises:
        CalledProcessError: there is no such revision, or no repository.
    """

    def git(*words: str) -> list[Path]:
        done = subprocess.run(["git", *words], cwd=PROJECT, capture_output=True, text=True, check=True)
        return [path for line in done.stdout.splitlines() if (path := Path(line)) not in RESULTS]

    new = git("ls-files", "--others", "--exclude-standard")
    for revision in (since,) if since else ("HEAD", "HEAD~1"):
        if found := [*git("diff", "--no-renames", "--name-only", revision), *new]:
            return found, revision
    return [], since or "HEAD~1"


def mentioning(name: str, tests: Mapping[str, Path]) -> list[str]:
    """Return the tests whose text has the name of a file that is no module."""
    return [module for module, path in tests.items() if name in (PROJECT / path).read_text()]


def is_marked(module: str) -> bool:
    """Whether a module is a test file of which some are for `make lab`."""
    path = sources().get(module)
    return module.startswith("tests.") and path is not None and "mark.lab" in (PROJECT / path).read_text()


def select(changed: Iterable[Path], budget_s: float = BUDGET_S) -> tuple[list[str], list[str], bool]:
    """Return the test files to run, those that would take too long, and whether the laboratory itself changed."""
    known = sources()
    tests = {module: path for module, path in known.items() if path.name.startswith("test_")}
    modules = [module_of(path) for path in changed if path.suffix == ".py"]
    near = distances(modules, importers(frozenset(modules).difference(sources())))
    for path in changed:
        if path.suffix != ".py":
            of_pages = [module for module in tests if path.suffix in WEB and module.startswith("tests.ui.")]
            near |= dict.fromkeys([*mentioning(path.name, tests), *of_pages], 1)
    of_the_lab = any(module.startswith((*LABORATORY, "tests.lab.")) or is_marked(module) for module in modules)
    seconds = {str(path): 0.0 for path in tests.values()} | known_seconds("lab") | known_seconds()
    found = sorted(
        (near[module], seconds[str(path)], str(path))
        for module, path in tests.items()
        if module in near and (of_the_lab or not module.startswith("tests.lab."))
    )
    chosen, left_out, left_s = list[str](), list[str](), budget_s
    for distance, takes_s, file in found:
        if takes_s > left_s and distance:
            left_out.append(file)
        else:
            chosen.append(file)
            left_s -= max(takes_s, SHORT_S)
    return chosen, left_out, of_the_lab


def main() -> int:
    """Run what was selected; returns pytest's exit code, and 2 if git has no answer."""
    parser = argparse.ArgumentParser(prog="python -m tests.quick", description=__doc__)
    parser.add_argument("--since", help="a revision: the tests of what differs from it (default: the last commit)")
    parser.add_argument("--list", action="store_true", help="print the files, and run none")
    options = parser.parse_args()
    try:
        changed, revision = changed_files(options.since)
    except subprocess.CalledProcessError as error:
        print(f"git says: {error.stderr.strip().splitlines()[0]}", file=sys.stderr)
        return 2
    chosen, left_out, of_the_lab = select(changed)
    print(f"changed since {revision}: {', '.join(map(str, changed[:5]))}{', …' if len(changed) > 5 else ''}")
    if not chosen:
        print("no test imports or names that: CONTRIBUTING.md says what to run", file=sys.stderr)
        return 1 if any(path.suffix == ".py" and path.parts[0] in (*PRODUCT, "lab") for path in changed) else 0
    print(f"test files to run: {len(chosen)}; that do not fit into two minutes, for `make test`: {len(left_out)}")
    if options.list:
        print("\n".join(chosen))
        return 0
    marks = ["-m", "not soak" if of_the_lab else "not soak and not lab"]
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--tb=short", "--maxfail=10", *marks, *chosen]
    code = subprocess.run(command, cwd=PROJECT, check=False).returncode
    if code == NO_TESTS:
        print("these are for `make soak`, or for `make lab`")
        return 0
    return code


if __name__ == "__main__":
    sys.exit(main())

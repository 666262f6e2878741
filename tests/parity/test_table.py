"""The page on Spark's cases, and the tests: each case that a test names is in the page, and the other way round."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
PAGE = FOLDER.parents[1] / "docs" / "internals" / "spark_cases.md"
CASE = re.compile(r'Spark:\s+(\w+)\s+"(.+?)"\s*(?=\n|$)', re.DOTALL)
ROW = re.compile(r"\| `(?P<case>.+?)` \| (?P<here>.+?) \|$")
TEST = re.compile(r"`([\w/]+\.py::\w+)`")
Key = tuple[str, str]


def named_by_tests() -> dict[Key, set[str]]:
    """Return the tests that name each case of a suite in their docstrings."""
    found: dict[Key, set[str]] = defaultdict(set)
    for path in sorted(FOLDER.rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                for suite, case in CASE.findall(ast.get_docstring(node) or ""):
                    found[suite, " ".join(case.split())].add(f"{path.relative_to(FOLDER)}::{node.name}")
    return found


def rows_of_the_page() -> Iterator[tuple[Key, str]]:
    suite = ""
    for line in PAGE.read_text().splitlines():
        if line.startswith("## "):
            suite = line.removeprefix("## ").strip()
        elif row := ROW.match(line):
            yield (suite, row["case"]), row["here"]


def test_each_case_stands_once() -> None:
    keys = [key for key, _ in rows_of_the_page()]
    assert [key for key in keys if keys.count(key) > 1] == []


def test_the_page_names_the_tests_that_name_the_case() -> None:
    by_page = {key: set(TEST.findall(here)) for key, here in rows_of_the_page()}
    assert {key: tests for key, tests in by_page.items() if tests} == named_by_tests()


def test_a_case_without_a_test_has_a_reason() -> None:
    without = [(key, here) for key, here in rows_of_the_page() if not TEST.search(here)]
    assert [key for key, here in without if not re.match(r"cannot apply: \w", here)] == []


def test_the_counts_are_right() -> None:
    rows = list(rows_of_the_page())
    covered = sum(bool(TEST.search(here)) for _, here in rows)
    differ = sum("differs:" in here for _, here in rows)
    said = f"{len(rows)} cases: {covered} have a test here, {differ} of which on a difference; "
    assert said + f"{len(rows) - covered} cannot apply." in " ".join(PAGE.read_text().split())

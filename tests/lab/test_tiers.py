"""What chooses, measures and repeats tests: `make quick`, `make durations`, `make soak`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests import quick, soak
from tests.durations import LEAST_S, read_report, section
from tests.quick import NO_TESTS, select

NEAREST = {
    "exactly_once/decision.py": "tests/unit/sink/test_decision.py",
    "broker_lite/handlers/produce.py": "tests/unit/broker/test_produce_formats.py",
    "connectors/kafka_source/planner.py": "tests/parity/test_planning.py",
    "jobs/cli/audit.py": "tests/unit/audit/test_command.py",
    "jobs/ui/pages/topics.html": "tests/ui/test_topics_page.py",
    "jobs/demo/report.py": "tests/unit/demo/test_report.py",
    "tests/unit/test_cli.py": "tests/unit/test_cli.py",
    "sparkonce/__init__.py": "tests/unit/test_public_face.py",
    "tests/ui/conftest.py": "tests/ui/test_guard.py",
    "tests/unit/sql/tables.py": "tests/unit/sql/test_select.py",
    "tests/conftest.py": "tests/unit/test_test_order.py",
    "connectors/kafka_source/__init__.py": "tests/parity/test_planning.py",
}
"""A changed file, and a test file that must be chosen: by an import, by a text that names a module, by its kind."""


@pytest.mark.parametrize("changed", NEAREST)
def test_what_is_near_is_chosen(changed: str) -> None:
    chosen, _, of_the_lab = select([Path(changed)])
    assert NEAREST[changed] in chosen
    assert not of_the_lab
    assert not [file for file in chosen if file.startswith("tests/lab/")]


def test_the_laboratory_has_tests_of_its_own() -> None:
    chosen, _, of_the_lab = select([Path("lab/verify/report.py")])
    assert of_the_lab
    assert "tests/lab/verify/test_report.py" in chosen


def test_a_module_that_is_gone_is_missed_by_those_that_import_it(monkeypatch: pytest.MonkeyPatch) -> None:
    there = {module: path for module, path in quick.sources().items() if module != "sparkonce.exactly_once.decision"}
    monkeypatch.setattr(quick, "sources", lambda: there)
    assert "tests/unit/sink/test_decision.py" in select([Path("exactly_once/decision.py")])[0]


def test_what_changed_itself_is_run_whatever_it_takes() -> None:
    assert select([Path("tests/verify/test_quick.py")], budget_s=1.0)[0] == ["tests/verify/test_quick.py"]


def test_the_table_has_each_case_once(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    case = '<testcase file="tests/a/test_b.py" time="{}"/>'
    report.write_text(f"<testsuites>{case.format(2 * LEAST_S)}{case.format(0.5)}</testsuites>")
    cases, seconds = read_report(report)
    assert cases == Counter({"tests/a/test_b.py": 2})
    table = section("test", {**cases, "tests/c/test_d.py": 7}, {**seconds, "tests/c/test_d.py": 0.1}, 10, 5)
    assert "| tests/a/test_b.py | 2 | 2.5 |" in table
    assert "| 1 others | 7 | 0.1 |" in table


def test_parts_of_soak_runs_are_files_that_are_there() -> None:
    parts = list(soak.parts())
    assert "lab/verify/test_larger_choices" in parts
    assert "properties/unit/sink/test_decision" in parts
    assert [part for part in parts if not (soak.TESTS / f"{part.removeprefix(soak.PROPERTIES)}.py").is_file()] == []


def test_a_part_in_which_nothing_ran_has_not_passed() -> None:
    assert soak.outcome_of(0, "3 passed, 1 skipped") == "passed"
    assert soak.outcome_of(0, "2 skipped, 7 deselected") == "nothing"
    assert soak.outcome_of(NO_TESTS, "7 deselected") == "nothing"
    assert soak.outcome_of(1, "1 failed, 2 passed") == "failed"
    assert soak.outcome_of(2, "1 error") == "failed"


def test_results_of_soak_runs_are_kept_and_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soak, "RESULTS", tmp_path / "soak.md")
    first = soak.Result("sim/test_seeds", "failed", "1 failed, 2 passed", 61, "2026-11-28", "12345678+")
    other = soak.Result("properties/sim/test_seeds", "passed", "2 passed", 7, "2026-11-28", "12345678")
    soak.keep(first)
    soak.keep(other)
    assert soak.known() == {first.part: first, other.part: other}
    again = soak.Result("sim/test_seeds", "passed", "3 passed", 60, "2026-11-29", "12345678")
    soak.keep(again)
    assert soak.known() == {first.part: again, other.part: other}

"""The results of `sparkonce verify`, read from its file and shown as a matrix."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from sparkonce import verify_results
from sparkonce.jobs.lab.verify.cells import Outcome, Shows
from sparkonce.jobs.lab.verify.cluster.cells import all_faults
from sparkonce.jobs.lab.verify.matrix import full, must_show
from sparkonce.jobs.lab.verify.progress import ProgressFile
from sparkonce.jobs.lab.verify.results import result_line, to_json
from sparkonce.jobs.lab.verify.setback.cells import all_setbacks


def outcome(cell: Any, shows: Shows = Shows.NEITHER, wrong: str | None = None, **more: Any) -> Outcome[Any]:
    facts: dict[str, Any] = {"fired": True, "to_compare": False} | more
    lost = int(wrong is not None)
    return Outcome(cell, shows, 40, lost, 0, wrong=wrong, moments=(), errors=(), seconds=1.0, **facts)


def written(folder: Path, outcomes: list[Outcome[Any]]) -> Path:
    file = folder / "results.json"
    file.write_text(json.dumps([to_json(each) for each in outcomes]))
    return file


def test_the_whole_matrix(tmp_path: Path) -> None:
    crashes = [outcome(cell, must_show(cell)) for cell in full()]
    outcomes = [*crashes, *(outcome(cell) for cell in (*all_setbacks(), *all_faults()))]
    results = verify_results(written(tmp_path, outcomes))
    assert f"RESULT cells={len(outcomes)} lost=0 duplicated=0 wrong=0" == result_line(outcomes)
    assert str(results) == f"{len(outcomes)} cells: lost=0 duplicated=0 wrong=0"
    html = results._repr_html_()
    row = next(row for row in re.findall(r"<tr>(.*?)</tr>", html) if ">sink.between_writes<" in row)
    assert re.search(r">= \+ − \(\d+\)<", row) or re.search(r">\+ − \(\d+\)<", row)  # noqa: RUF001
    assert "✗" not in html


def test_wrong_cells_are_named_with_why_and_those_to_compare_are_left_out(tmp_path: Path) -> None:
    first, second, third, *_ = full()
    wrong, unfired = outcome(first, wrong="lost <1>"), outcome(second, fired=False)
    results = verify_results(written(tmp_path, [wrong, unfired, outcome(third, to_compare=True)]))
    assert [(cell.name, cell.wrong) for cell in results.wrong] == [
        (first.name, "lost <1>"),
        (second.name, "its fault did not happen"),
    ]
    assert len(results.cells) == 2
    html = results._repr_html_()
    assert "✗" in html
    assert "lost &lt;1&gt;" in html


def test_the_folder_of_a_run_that_goes_on(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is not a folder of sparkonce verify --keep"):
        verify_results(tmp_path)
    first, second, third, *_ = full()
    file = ProgressFile(tmp_path, [first, second, third])
    file.outcome(outcome(first))
    file.outcome(outcome(second, fired=False))
    results = verify_results(tmp_path)
    assert [(cell.name, cell.wrong) for cell in results.cells] == [
        (first.name, None),
        (second.name, "its fault did not happen"),
    ]


@pytest.mark.parametrize("text", ["no JSON", "{}[]", '[{"a": 1}]', '{"a": 1}'])
def test_another_file_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "another"
    file.write_text(text)
    with pytest.raises(ValueError, match="is not a file of sparkonce verify --json"):
        verify_results(file)

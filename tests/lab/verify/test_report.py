"""The page of `python -m lab.verify`: what it says of cells made by hand."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html.parser import HTMLParser
from itertools import pairwise

import pytest

from lab.verify.cells import Cell, Kind, Moment, Outcome, RecordPath, Result, Shows
from lab.verify.matrix import full
from lab.verify.pairwise import quick
from lab.verify.report import Verdict, page, verdict_of
from lab.verify.report_timeline import LANES, timeline
from sparkonce.crash_points import CrashPoint
from sparkonce.exactly_once.crash_points import SinkPoint
from sparkonce.exactly_once.guarantee import Guarantee

VOID = {"meta", "br"}
MOMENTS = (
    Moment(0.0, "pipeline", "started"),
    Moment(1.25, "commit", "version 1: offsets of batch 0"),
    Moment(1.5, "fault", "RAISE at sink.between_writes"),
    Moment(1.51, "checkpoint", "deleted"),
    Moment(1.6, "broker", "killed"),
    Moment(3.0, "commit", "version 2: rows and offsets of batch 1"),
)


class Page(HTMLParser):
    """Checks that what is opened is closed, and gathers links, targets, open cells and text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.targets: list[str] = []
        self.cells: list[bool] = []
        self.tiles: list[str] = []
        self._words: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = dict(attributes)
        assert tag != "script"
        for name in ("src", "href"):
            assert (values.get(name) or "#").startswith("#"), "the page loads nothing from elsewhere"
        if tag == "a":
            self.links.append(str(values["href"]))
            self.tiles.append(str(values["class"]))
        if "id" in values:
            self.targets.append(f"#{values['id']}")
        if tag == "details":
            self.cells.append("open" in values)
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self._words.append(data)

    @property
    def words(self) -> str:
        return "".join(self._words)


def outcome(
    point: CrashPoint = SinkPoint.BETWEEN_WRITES,
    guarantee: Guarantee = Guarantee.AT_LEAST_ONCE,
    must_show: Shows = Shows.DUPLICATES,
    wrong: str | None = None,
    **changes: object,
) -> Outcome:
    cell = Cell(
        point,
        changes.pop("kind", Kind.EXCEPTION),  # type: ignore[arg-type]
        guarantee,
        changes.pop("result", Result.APPEND),  # type: ignore[arg-type]
        bool(changes.pop("delete_checkpoint", False)),
        changes.pop("path", RecordPath.SPARK),  # type: ignore[arg-type]
    )
    values = {"records": 100, "lost": 0, "duplicated": 25, "fired": True, "errors": (), "moments": MOMENTS}
    return Outcome(cell=cell, must_show=must_show, wrong=wrong, seconds=4.2, **(values | changes))  # type: ignore[arg-type]


def test_every_cell_has_a_tile_that_leads_to_it() -> None:
    outcomes = [
        outcome(
            cell.point,
            cell.guarantee,
            Shows.NEITHER,
            kind=cell.kind,
            result=cell.result,
            delete_checkpoint=deleted,
            path=cell.path,
        )
        for cell in quick(full())
        for deleted in (False, True)
    ]
    outcomes = list({each.cell: each for each in outcomes}.values())
    shown = Page(page(outcomes, "RESULT"))
    assert len(set(shown.links)) == len(shown.links) == len(outcomes)
    assert set(shown.links) == set(shown.targets)
    assert len(shown.targets) == len(outcomes)


@pytest.mark.parametrize(
    ("one", "verdict"),
    [
        (outcome(must_show=Shows.NEITHER), Verdict.HELD),
        (outcome(must_show=Shows.LOSS), Verdict.LOSS),
        (outcome(must_show=Shows.DUPLICATES), Verdict.DUPLICATES),
        (outcome(must_show=Shows.NEITHER, wrong="2 lost"), Verdict.WRONG),
        (outcome(must_show=Shows.NEITHER, fired=False), Verdict.WRONG),
    ],
)
def test_a_tile_tells_what_its_cell_showed_by_sign_and_colour(one: Outcome, verdict: Verdict) -> None:
    assert verdict_of(one) is verdict
    text = page([one], "RESULT")
    assert Page(text).tiles == [f"tile {verdict.style}"]
    assert re.search(rf'<a class="tile {verdict.style}" [^>]*>{re.escape(verdict.sign)}</a>', text)
    assert len({each.sign for each in Verdict}) == len({each.style for each in Verdict}) == len(Verdict)


@pytest.mark.parametrize("result", Result)
def test_a_tile_shows_the_result_and_a_deleted_checkpoint(result: Result) -> None:
    text = page([outcome(result=result, delete_checkpoint=True)], "RESULT")
    shape = "" if result is Result.APPEND else f" {result.value}"
    assert Page(text).tiles == [f"tile duplicates{shape} deleted"]
    assert f'<span class="tile skipped {result.value}">' in text, "the legend says what the shape means"
    assert not shape or f".tile.{result.value} {{" in text


def test_wrong_cells_are_open_and_come_first() -> None:
    right, wrong = outcome(), outcome(SinkPoint.AFTER_COMMIT, Guarantee.EXACTLY_ONCE, wrong="3 rows came twice")
    text = page([right, wrong], "RESULT cells=2 wrong=1")
    shown = Page(text)
    assert shown.cells == [True, False]
    assert shown.targets == [f"#cell-{wrong.cell.name}", f"#cell-{right.cell.name}"]
    assert "1 of 2 cells did not show what they must" in shown.words
    assert "Wrong: 3 rows came twice" in shown.words
    assert 'class="verdict bad"' in text


def test_the_result_line_and_the_counts_stand_at_the_top() -> None:
    outcomes = [
        outcome(),
        outcome(SinkPoint.AFTER_COMMIT, must_show=Shows.NEITHER, duplicated=0),
        outcome(guarantee=Guarantee.AT_MOST_ONCE, must_show=Shows.LOSS, lost=7, duplicated=0),
    ]
    text = page(outcomes, "RESULT cells=3 lost=0 duplicated=0 wrong=0")
    assert "All 3 cells showed what they must." in text
    assert "RESULT cells=3 lost=0 duplicated=0 wrong=0" in text
    rows = [re.findall("<td>(.*?)</td>", line) for line in text.splitlines() if line.startswith("<tr><td>at-")]
    assert rows == [
        ["at-most-once", "1", "0", "1", "0", "0", "7", "0"],
        ["at-least-once", "2", "1", "0", "1", "0", "0", "25"],
    ]


def test_no_cell_is_no_success() -> None:
    assert "No cell ran." in page([], "RESULT cells=0")


def test_cells_that_did_not_run_are_told_from_those_that_cannot() -> None:
    ran, skipped = outcome(), outcome(delete_checkpoint=True)
    text = page([ran], "RESULT", possible=[ran.cell, skipped.cell])
    assert '<span class="tile skipped deleted" title=' in text
    assert Page(text).links == [f"#cell-{ran.cell.name}"]


def test_all_text_is_escaped() -> None:
    evil = "<script>alert('&\"')</script>"
    one = outcome(wrong=evil, errors=(evil,), moments=(Moment(0.5, "commit", evil),))
    shown = Page(page([one], evil))
    assert shown.words.count(evil) == 5  # the result, the reason, the error, the table's line, the mark's title


def test_the_two_writes_have_a_shape_each_and_the_crash_runs_over_all_lanes() -> None:
    picture = timeline(MOMENTS)
    assert picture.count('class="offsets"') == 2
    assert picture.count('class="rows"') == 1
    assert picture.count('class="crash"') == 1
    assert picture.count('class="checkpoint"') == picture.count('class="broker"') == 1
    for lane in LANES:
        assert f">{lane}</text>" in picture


@pytest.mark.parametrize(
    "moments", [(), (Moment(0.0, "fault", "at once"),), tuple(Moment(1.0, "commit", "rows") for _ in range(9))]
)
def test_a_timeline_needs_no_time_and_keeps_its_numbers_apart(moments: Sequence[Moment]) -> None:
    number = r'<text class="soft" x="([\d.]+)" y="\d+" text-anchor="middle">\d+</text>'
    picture = timeline(moments)
    places = [float(x) for x in re.findall(number, picture)]
    (width,) = re.findall(r'viewBox="0 0 (\d+)', picture)
    assert len(places) == len(moments)
    assert all(second - first >= 10 for first, second in pairwise(places))
    assert all(x <= float(width) for x in places)


def test_exactly_once_comes_first_and_the_page_says_what_made_it() -> None:
    text = page([], "RESULT cells=0", full(), "python -m lab.verify --kafka '<real>', which ended at noon")
    guarantees = re.findall(r'<th class="guarantee first"[^>]*>([a-z-]+)<', text)
    assert guarantees == ["exactly-once", "at-most-once", "at-least-once"]
    assert "Made by python -m lab.verify --kafka &#x27;&lt;real&gt;&#x27;, which ended at noon" in text

"""An HTML page about one run of the matrix: the verdict, the matrix as a picture, and a timeline for each cell.

A row of the matrix is a crash point, a column a guarantee and a kind of crash. Each combination has several cells: with
and without the checkpoint, for each result and path. Each is a tile whose sign and colour show its outcome, and whose
outline shows the variant. A tile links to its cell below; wrong cells come first there, expanded.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import Enum
from html import escape
from itertools import groupby

from lab.crash_plans import POINTS
from lab.page import document
from lab.verify.cells import (
    AnyCell,
    Cell,
    Fate,
    Features,
    Kind,
    Outcome,
    RecordPath,
    Result,
    Shared,
    Shows,
    path_words,
    table_words,
)
from lab.verify.cluster.cells import ClusterCell
from lab.verify.cluster.section import cell_details
from lab.verify.cluster.section import section as faults_section
from lab.verify.report_timeline import TIMELINE_STYLE, steps, timeline
from lab.verify.setback.cells import SetBackCell
from lab.verify.setback.tables import section
from lab.verify.shows.cells import ShowCell
from sparkonce.crash_points import CrashPoint
from sparkonce.exactly_once.guarantee import Guarantee
from sparkonce.notebook import table

STYLE = """
:root { --held: var(--good); --loss: var(--warn); --duplicates: var(--link); --wrong: var(--bad);
  --on-tile: var(--page) }
body { max-width: 1400px } .legend li { break-inside: avoid; padding-left: 1.8rem; text-indent: -1.8rem }
.legend .tile { text-indent: 0 }
.matrix th, .matrix td { padding: .15rem .25rem; border: 1px solid var(--line); text-align: center;
  vertical-align: middle; font-weight: normal }
.matrix thead th { font-size: .75rem; line-height: 1.2 } .matrix .guarantee { font-weight: 600; font-size: .9rem }
.matrix tbody th { text-align: left; position: sticky; left: 0; background: var(--page); white-space: nowrap }
.matrix .part { font-weight: 600 } .matrix td.first, .matrix th.first { border-left-width: 3px }
.tiles { display: inline-grid; grid-template-columns: repeat(2, 1.35rem); gap: .2rem; justify-content: center }
.tile { display: inline-block; width: 1.2rem; height: 1.2rem; line-height: 1.2rem; text-align: center;
  font-weight: 700; font-size: .8rem; text-decoration: none; color: var(--on-tile); border-radius: 3px;
  border: 2px solid transparent; background-clip: padding-box }
.tile.merge { border-radius: 50% } .tile.topic { border-radius: 50% 0 } .tile.dead-letters { border-radius: 0 50% }
.tile.foreach-batch { border-radius: 0 0 50% 50% } .tile.append-writer { border-radius: 50% 50% 0 0 }
.tile.direct { box-shadow: 0 3px 0 var(--ink) }
.tile.features { outline: 1px solid var(--ink); outline-offset: 1px }
.tile.deleted { border: 2px dashed var(--ink) }
.held { background-color: var(--held) } .loss { background-color: var(--loss) }
.duplicates { background-color: var(--duplicates) } .wrong { background-color: var(--wrong) }
.skipped { color: var(--soft); border-color: var(--line) } .none { color: var(--soft) }
.legend { columns: 20rem; padding: 0; list-style: none } .legend .tile { margin-right: .4rem }
details { border-top: 1px solid var(--line); padding: .3rem 0 } summary { cursor: pointer }
details > div { scroll-margin-top: 4rem; padding: .3rem 0 1rem } pre { white-space: pre-wrap; word-break: break-word }
"""

_RESULT_WORDS = {
    Result.APPEND: "square: rows are appended to a table",
    Result.MERGE: "round: rows are merged into a table by key",
    Result.APPEND_WRITER: "round above: rows are appended to a table by delta-spark",
    Result.FOREACH_BATCH: "round below: rows are inserted into a database",
    Result.TOPIC: "two round corners, the first on the left above: rows are sent to a topic",
    Result.DEAD_LETTERS: "two round corners, the first on the right above: rows are appended, dead letters sent",
}
DETAIL_PREFIX = "cell-"
SHOWN = tuple(sorted(Guarantee, key=lambda guarantee: guarantee is not Guarantee.EXACTLY_ONCE))
"""The guarantees from left to right: a narrow window shows the first, exactly-once, without scrolling."""


class Verdict(Enum):
    """A tile: its CSS class, its sign, and its text."""

    HELD = ("held", "✓", "nothing lost, nothing twice, as it must be")
    LOSS = ("loss", "−", "showed a loss, as it must")  # noqa: RUF001
    DUPLICATES = ("duplicates", "+", "showed duplicates, as it must")
    WRONG = ("wrong", "✗", "WRONG: did not show what it must, or its fault did not fire")
    SKIPPED = ("skipped", "○", "can occur, and was not chosen for this run")

    def __init__(self, style: str, sign: str, words: str) -> None:
        self.style = style
        self.sign = sign
        self.words = words


_SHOWN = {Shows.NEITHER: Verdict.HELD, Shows.LOSS: Verdict.LOSS, Shows.DUPLICATES: Verdict.DUPLICATES}


def verdict_of(outcome: Outcome[Cell]) -> Verdict:
    """Return a cell's tile; a cell whose fault did not fire proves nothing, so it is wrong."""
    return Verdict.WRONG if outcome.wrong is not None or not outcome.fired else _SHOWN[outcome.must_show]


def page(
    outcomes: Sequence[Outcome[Cell]],
    result: str,
    possible: Collection[Cell] = (),
    made: str = "",
    setbacks: Sequence[Outcome[SetBackCell]] = (),
    faults: Sequence[Outcome[ClusterCell]] = (),
    beside: Sequence[Outcome[ShowCell]] = (),
) -> str:
    """Return the whole page as text.

    ``result`` is the last line that the command printed. Cells of ``possible`` that did not run are shown as such.
    ``made`` is the command that made the page, and when. ``setbacks``, ``faults``, those of a
    cluster, and ``beside``, those of a show, have separate parts.
    """
    wrong = [outcome for outcome in outcomes if verdict_of(outcome) is Verdict.WRONG]
    right = [outcome for outcome in outcomes if verdict_of(outcome) is not Verdict.WRONG]
    others: list[Outcome[AnyCell]] = [*setbacks, *faults, *beside]
    bad = sum(each.wrong is not None for each in others)
    state, words = _headline(len(outcomes) + len(others), len(wrong) + bad)
    body = f"""<h1>Every crash, every guarantee</h1>
<p>Each cell is one pipeline from a topic to a Delta table or another topic that was made to fail once, and was started
again. What it wrote was then held against the topic's records alone.</p>
{f"<p>Made by {escape(made)}</p>" if made else ""}
<p class="verdict {state}">{words} <code>{escape(result)}</code></p>
<div class="scroll">{table(COUNT_HEAD, counts(outcomes), page=True)}</div>
<h2>The matrix</h2>
<ul class="legend">{legend()}</ul>
<div class="scroll">{matrix(outcomes, possible)}</div>
<h2>Cell by cell</h2>
<p>The two writes of a batch are its rows and its offsets; the red line is where the crash fell.</p>
{"".join(details(outcome) for outcome in [*sorted(wrong, key=_order), *sorted(right, key=_order)])}
{section(setbacks)}{faults_section(faults)}{"".join(cell_details(each) for each in beside)}"""
    return document("python -m lab.verify", STYLE + TIMELINE_STYLE, body)


def _headline(cells: int, wrong: int) -> tuple[str, str]:
    if not cells:
        return "bad", "No cell ran."
    if wrong:
        return "bad", f"{wrong} of {cells} cells did not show what they must."
    return "good", f"All {cells} cells showed what they must."


COUNT_HEAD = (
    "guarantee",
    "cells",
    "held",
    "showed a loss",
    "showed duplicates",
    "wrong",
    "records lost",
    "rows twice",
)


def counts(outcomes: Sequence[Outcome[Cell]]) -> Iterable[Sequence[str]]:
    """Yield the sums of each guarantee, under `COUNT_HEAD`."""
    for guarantee in SHOWN:
        chosen = [outcome for outcome in outcomes if outcome.cell.guarantee is guarantee]
        verdicts = [verdict_of(outcome) for outcome in chosen]
        numbers = [len(chosen)]
        numbers += [verdicts.count(each) for each in (Verdict.HELD, Verdict.LOSS, Verdict.DUPLICATES, Verdict.WRONG)]
        numbers += [sum(outcome.lost for outcome in chosen), sum(outcome.duplicated for outcome in chosen)]
        yield [guarantee.value, *(f"{number:,}" for number in numbers)]


def legend() -> str:
    """Return the meaning of the tiles, as list items."""
    items = [f'<li><span class="tile {each.style}">{each.sign}</span>{escape(each.words)}</li>' for each in Verdict]
    items += [
        f'<li><span class="tile skipped {each.value}">○</span>{words}</li>' for each, words in _RESULT_WORDS.items()
    ]
    items.append(
        '<li><span class="tile skipped deleted">□</span>dashed: the checkpoint was deleted before the restart</li>'
    )
    items.append(
        '<li><span class="tile skipped direct">○</span>underlined: the sink reads the records itself (direct)</li>'
    )
    items.append(
        '<li><span class="tile skipped features">○</span>outlined: with features, or one of several tables</li>'
    )
    items.append('<li><span class="tile none">·</span>cannot occur</li>')
    return "".join(items)


def matrix(outcomes: Sequence[Outcome[Cell]], possible: Collection[Cell], link: str = f"#{DETAIL_PREFIX}") -> str:
    """Return the matrix as a table; a tile links to ``link`` with its cell's name."""
    ran = {outcome.cell: outcome for outcome in outcomes}
    cells: dict[tuple[CrashPoint, Guarantee, Kind], list[Cell]] = {}
    for cell in sorted({*possible, *ran}, key=_cell_order):
        cells.setdefault((cell.point, cell.guarantee, cell.kind), []).append(cell)
    kinds = [kind for kind in Kind if any(key[2] is kind for key in cells)]
    columns = [(guarantee, kind) for guarantee in SHOWN for kind in kinds]
    return "".join(
        [
            '<table class="matrix"><thead>',
            _matrix_head(kinds),
            "</thead><tbody>",
            *_matrix_rows({point for point, _, _ in cells}, columns, cells, ran, link),
            "</tbody></table>",
        ]
    )


def _matrix_head(kinds: Sequence[Kind]) -> str:
    over = "".join(
        f'<th class="guarantee first" colspan="{len(kinds)}">{guarantee.value}</th>' for guarantee in SHOWN if kinds
    )
    under = "".join(
        f'<th class="{"first" if number == 0 else ""}">{escape(kind.value).replace(" ", "<br>")}</th>'
        for _ in SHOWN
        for number, kind in enumerate(kinds)
    )
    return f'<tr><th rowspan="2">crash point</th>{over}</tr><tr>{under}</tr>'


def _matrix_rows(
    points: Collection[CrashPoint],
    columns: Sequence[tuple[Guarantee, Kind]],
    cells: Mapping[tuple[CrashPoint, Guarantee, Kind], Sequence[Cell]],
    ran: Mapping[Cell, Outcome[Cell]],
    link: str,
) -> Iterable[str]:
    for part, group in groupby((point for point in POINTS if point in points), key=lambda point: point.area):
        yield f'<tr><th class="part" colspan="{len(columns) + 1}">{part}</th></tr>'
        for point in group:
            slots = []
            for number, (guarantee, kind) in enumerate(columns):
                first = number == 0 or columns[number - 1][0] is not guarantee
                tiles = [_tile(cell, ran.get(cell), link) for cell in cells.get((point, guarantee, kind), ())]
                inner = f'<span class="tiles">{"".join(tiles)}</span>' if tiles else '<span class="none">·</span>'
                slots.append(f'<td class="{"first" if first else ""}">{inner}</td>')
            yield f'<tr><th title="{point.value}">{point.value.partition(".")[2]}</th>{"".join(slots)}</tr>'


def _tile(cell: Cell, outcome: Outcome[Cell] | None, to: str) -> str:
    verdict = Verdict.SKIPPED if outcome is None else verdict_of(outcome)
    classes = ["tile", verdict.style]
    classes += [cell.result.value] if cell.result is not Result.APPEND else []
    classes += ["deleted"] if cell.delete_checkpoint else []
    classes += path_words(cell.path)
    classes += ["features"] if cell.features or cell.shared else []
    said = escape(f"{cell_words(cell)}: {verdict.words}")
    if outcome is None:
        return f'<span class="{" ".join(classes)}" title="{said}">{verdict.sign}</span>'
    link = f'href="{to}{escape(cell.name)}" title="{said}" aria-label="{said}"'
    return f'<a class="{" ".join(classes)}" {link}>{verdict.sign}</a>'


def details(outcome: Outcome[Cell]) -> str:
    """Render one cell, collapsed. The link target is inside, since a browser expands what contains a target."""
    verdict = verdict_of(outcome)
    is_open = " open" if verdict is Verdict.WRONG else ""
    return (
        f'<details{is_open}><summary><span class="tile {verdict.style}">{verdict.sign}</span> '
        f'{escape(cell_words(outcome.cell))} <span class="none">{outcome.seconds:.1f} s</span></summary>'
        f'<div id="{DETAIL_PREFIX}{escape(outcome.cell.name)}">{explained(outcome)}</div></details>\n'
    )


def explained(outcome: Outcome[Cell]) -> str:
    """Return the explanation of one cell, with its timeline."""
    reason = outcome.wrong or ("" if outcome.fired else "its fault did not fire")
    parts = [f"<p>Must show: <b>{outcome.must_show.value}</b>. Showed: {_showed(outcome)}.</p>"]
    parts += [f'<p class="bad"><b>Wrong:</b> {escape(reason)}</p>'] if reason else []
    parts += [
        f'<div class="scroll" tabindex="0">{timeline(outcome.moments)}</div>',
        table(("step", "seconds", "lane", "what"), steps(outcome.moments), page=True),
    ]
    if outcome.errors:
        lines = "\n".join(escape(error) for error in outcome.errors)
        parts.append(f"<p>The errors with which runs ended:</p><pre><code>{lines}</code></pre>")
    return "".join(parts)


def _showed(outcome: Outcome[Cell]) -> str:
    fired = "the fault fired" if outcome.fired else "the fault did NOT fire"
    return f"{outcome.lost:,} lost and {outcome.duplicated:,} twice, of {outcome.records:,} records; {fired}"


def cell_words(cell: Cell) -> str:
    """Describe a cell."""
    checkpoint = ", checkpoint deleted" if cell.delete_checkpoint else ""
    way = "".join(f", {word}" for word in [*path_words(cell.path), *table_words(cell)])
    return f"{cell.guarantee.value}, {cell.result.value}, {cell.kind.value} at {cell.point.value}{checkpoint}{way}"


_GUARANTEES, _KINDS, _RESULTS, _PATHS = list(Guarantee), list(Kind), list(Result), list(RecordPath)
_FEATURES, _SHARED = [None, *Features], [None, *Shared]
_FATES = [None, *Fate]


def _cell_order(cell: Cell) -> tuple[int, ...]:
    """Order by declaration: an Enum's members have no order."""
    return (
        _GUARANTEES.index(cell.guarantee),
        POINTS.index(cell.point),
        _KINDS.index(cell.kind),
        _RESULTS.index(cell.result),
        cell.delete_checkpoint,
        _PATHS.index(cell.path),
        _FEATURES.index(cell.features),
        _SHARED.index(cell.shared),
        _FATES.index(cell.fate),
    )


def _order(outcome: Outcome[Cell]) -> tuple[int, ...]:
    return _cell_order(outcome.cell)

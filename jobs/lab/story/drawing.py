"""Stories as lines of text, and as a page: for each step the replicas' logs.

The page shows what came and what was cut off since the step before. A cell is a record: its label, its leader epoch as
colour and number, a tick if its producer was told that it is written. A heavy outline tells that it came with this
step, a dashed one that it was cut off. The bar is the high watermark. Every picture has a description in words for
those who cannot see it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape

from sparkonce.jobs.lab.story.catalogue import Story
from sparkonce.jobs.lab.story.view import Cell, ReplicaView, Step, Telling
from sparkonce.jobs.shared.arguments import show_columns
from sparkonce.jobs.shared.page import document, table

LEFT, CELL_WIDTH, CELL_HEIGHT, ROW_HEIGHT, TOP, RIGHT = 176, 62, 30, 50, 24, 132
EPOCH_COLOURS = 6
"""After this many epochs the colours repeat; the number in the cell distinguishes them."""

STYLE = """
:root { --e0: #cfe3ff; --e1: #ffd9a8; --e2: #c9efd0; --e3: #ecd0f5; --e4: #f7c9cf; --e5: #d5d9de; --hw: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --e0: #1f4b8e; --e1: #7a4a08; --e2: #1d5c2f; --e3: #5d2f75; --e4: #7d2833;
  --e5: #454c55; --hw: #ff8a80; } }
.steps { list-style: none; padding: 0 }
.steps li { margin: 1.4rem 0; border-top: 1px solid var(--line); padding-top: .6rem }
.steps p { margin: .2rem 0 } .soft { color: var(--soft) } .legend { line-height: 1.9 }
svg.logs { display: block; height: auto; max-width: 100% }
svg.logs text.label { font-weight: 600 } svg.logs text.small { font-size: 10px }
svg.logs text.strong { font-weight: 600; font-size: 13px } svg.logs .down { opacity: .6 }
svg.logs rect { stroke: var(--soft); stroke-width: 1 } svg.logs rect.new { stroke: var(--ink); stroke-width: 2.5 }
svg.logs rect.cut { fill: none; stroke: var(--kill); stroke-width: 1.5; stroke-dasharray: 4 3 }
svg.logs .cut-label { fill: var(--kill); text-decoration: line-through }
svg.logs .bar { stroke: var(--hw); stroke-width: 3.5 } svg.logs .end { stroke: var(--ink); stroke-width: 1.5 }
""" + "".join(f".e{each} {{ fill: var(--e{each}); background: var(--e{each}) }}\n" for each in range(EPOCH_COLOURS))


def lines(telling: Telling) -> Iterator[str]:
    """Yield a telling as lines of text: each step a line, with a line for each replica below it; then the tables."""
    for step in telling.steps:
        yield from _step(step)
    for figures in telling.tables:
        yield ""
        yield figures.title
        yield show_columns((figures.head, *figures.rows), indent="")


def result(name: str, telling: Telling) -> str:
    """Return the line for machines."""
    figures = " ".join(f"{figure}={count}" for figure, count in telling.figures.items())
    return f"RESULT story={name} rule={telling.rule.replace(' ', '-')} {figures}"


def brokers(ids: tuple[int, ...]) -> str:
    """Write a set of brokers."""
    return "{" + ",".join(map(str, ids)) + "}"


def _step(step: Step) -> Iterator[str]:
    yield f"{step.number:>2}. {step.text}."
    leader = f"leader {step.leader}" if step.leader >= 0 else "no leader"
    eligible = f"   ELR {brokers(step.eligible_leader_replicas)}" if step.eligible_leader_replicas else ""
    yield f"      {leader}, epoch {step.leader_epoch}   ISR {brokers(step.in_sync_replicas)}{eligible}"
    width = max(len(_records(each)) for each in step.replicas)
    for replica in step.replicas:
        epoch = f"epoch {replica.epoch}" if replica.epoch >= 0 else ""
        yield (
            f"      broker {replica.broker_id} {replica.role:<8}{epoch:<8} {_records(replica):<{width}}"
            f"  HW {replica.high_watermark}  LEO {replica.log_end_offset}"
        )
    if step.note:
        yield f"      {step.note}"


def _records(replica: ReplicaView) -> str:
    """Write a log: label@epoch, a star after what is acknowledged, a bar at the high watermark."""
    words = []
    for cell in replica.cells:
        if cell.offset == replica.high_watermark:
            words.append("|")
        words.append(f"{cell.label}@{cell.epoch}{'*' if cell.acknowledged else ''}")
    if replica.high_watermark == replica.log_end_offset:
        words.append("|")
    return " ".join(words)


def page(told: Sequence[tuple[Story, Telling]]) -> str:
    """Return the page of some stories, in this order."""
    body = ["<h1>What a replicated log keeps, and what it loses</h1>", legend()]
    if len(told) > 1:
        body.append("<nav aria-label='Stories'><ul>")
        body += [
            f'<li><a href="#t{at}">{escape(story.name)}, {escape(telling.rule)}</a></li>'
            for at, (story, telling) in enumerate(told)
        ]
        body.append("</ul></nav>")
    for at, (story, telling) in enumerate(told):
        body += _telling(at, story, telling)
    return document("sparkonce: stories of replication", STYLE, "\n".join(body))


def legend() -> str:
    """Return what the pictures mean, as HTML."""
    return (
        "<p class='legend soft'>A box is a record, its colour and <b>e</b> number the leader epoch, <b>&#10003;</b> a "
        "record that its producer was told is written. A heavy outline came with this step; a dashed one was cut off. "
        "The red bar is the high watermark (HW); LEO is the log end offset. &#9733; leads by its own idea. ISR: who is "
        "in sync, ELR: who else is eligible to lead, both by the controller's word.</p>"
    )


def _telling(at: int, story: Story, telling: Telling) -> Iterable[str]:
    yield f'<section aria-labelledby="t{at}"><h2 id="t{at}">{escape(story.name)}: {escape(story.title)}</h2>'
    bad = telling.figures.get(story.figure, 0) > 0
    others = ", ".join(f"{name} {count}" for name, count in telling.figures.items() if name != story.figure)
    yield f'<p class="soft">{escape(story.source)}</p>'
    yield f"<p>Rule: <b>{escape(telling.rule)}</b></p>"
    if telling.steps:
        verdict, mood = f"{story.figure} {telling.figures[story.figure]}", "bad" if bad else "good"
        yield f'<p><span class="verdict {mood}">{verdict}</span> <span class="soft">{others}</span></p>'
        yield '<ol class="steps">'
    width = columns(telling.steps)
    before: Step | None = None
    for step in telling.steps:
        yield f"<li><p><b>{step.number}.</b> {escape(step.text)}.</p><p class='soft'>{escape(cluster(step))}</p>"
        yield logs(step, before, width, f"t{at}s{step.number}")
        if step.note:
            yield f"<p>{escape(step.note)}</p>"
        yield "</li>"
        before = step
    yield "</ol>" if telling.steps else ""
    for each in telling.tables:
        yield f"<p>{escape(each.title)}</p><div class='scroll'>{table(each.head, each.rows)}</div>"
    yield "</section>"


def logs(step: Step, before: Step | None, columns: int, name: str) -> str:
    """Return the picture of a step as SVG.

    Args:
        step: what to draw.
        before: the step that it is compared with, if there is one.
        columns: how many offsets there is room for.
        name: what the ids in it begin with.
    """
    width = LEFT + columns * CELL_WIDTH + RIGHT
    height = TOP + ROW_HEIGHT * len(step.replicas)
    parts = [
        f'<svg class="logs" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" '
        f'aria-labelledby="{name}t {name}d">',
        f'<title id="{name}t">Step {step.number}: the logs of {len(step.replicas)} replicas</title>',
        f'<desc id="{name}d">{escape(_words(step))}</desc>',
    ]
    for offset in range(columns):
        x = LEFT + (offset + 0.5) * CELL_WIDTH
        parts.append(f'<text class="soft small" x="{x}" y="14" text-anchor="middle">{offset}</text>')
    earlier = {} if before is None else {each.broker_id: each.cells for each in before.replicas}
    for row, replica in enumerate(step.replicas):
        known = earlier.get(replica.broker_id)
        parts += _replica(replica, replica.cells if known is None else known, TOP + ROW_HEIGHT * row)
    return "\n".join([*parts, "</svg>"])


def _replica(replica: ReplicaView, before: Sequence[Cell], y: int) -> Iterable[str]:
    down = ' class="down"' if replica.role == "down" else ""
    yield f"<g{down}>"
    star = "&#9733; " if replica.role == "leads" else ""
    epoch = f", epoch {replica.epoch}" if replica.epoch >= 0 else ""
    in_sync = ", in sync" if replica.in_sync else ""
    yield f'<text class="strong" x="0" y="{y + 14}">{star}broker {replica.broker_id}</text>'
    yield f'<text class="soft" x="0" y="{y + 30}">{replica.role}{epoch}{in_sync}</text>'
    known = {(each.offset, each.epoch, each.label) for each in before}
    now = {(each.offset, each.epoch, each.label) for each in replica.cells}
    for cell in before:
        if (cell.offset, cell.epoch, cell.label) not in now:
            yield from _cut_off(cell, y, over=cell.offset < replica.log_end_offset)
    for cell in replica.cells:
        yield from _cell(cell, y, new=(cell.offset, cell.epoch, cell.label) not in known)
    bar, end = (LEFT + offset * CELL_WIDTH for offset in (replica.high_watermark, replica.log_end_offset))
    yield f'<line class="end" x1="{end}" x2="{end}" y1="{y - 1}" y2="{y + CELL_HEIGHT + 1}"/>'
    yield f'<line class="bar" x1="{bar}" x2="{bar}" y1="{y - 5}" y2="{y + CELL_HEIGHT + 5}"/>'
    after = LEFT + max([replica.log_end_offset, *(cell.offset + 1 for cell in before)]) * CELL_WIDTH + 12
    yield f'<text x="{after}" y="{y + 20}">HW {replica.high_watermark}  LEO {replica.log_end_offset}</text></g>'


def _cell(cell: Cell, y: int, *, new: bool) -> Iterable[str]:
    x = LEFT + cell.offset * CELL_WIDTH
    fresh = " new" if new else ""
    yield (
        f'<rect class="e{cell.epoch % EPOCH_COLOURS}{fresh}" x="{x + 2}" y="{y}" '
        f'width="{CELL_WIDTH - 4}" height="{CELL_HEIGHT}" rx="3"/>'
    )
    tick = " &#10003;" if cell.acknowledged else ""
    yield f'<text class="label" x="{x + 8}" y="{y + 14}">{escape(cell.label)}{tick}</text>'
    yield f'<text class="small" x="{x + 8}" y="{y + 26}">e{cell.epoch}</text>'


def _cut_off(cell: Cell, y: int, *, over: bool) -> Iterable[str]:
    """Draw a record that is gone; below, if another one has its place."""
    x = LEFT + cell.offset * CELL_WIDTH
    if over:
        below = y + CELL_HEIGHT + 12
        yield f'<text class="small cut-label" x="{x + 8}" y="{below}">{escape(cell.label)} e{cell.epoch}</text>'
    else:
        yield (
            f'<rect class="cut" x="{x + 2}" y="{y}" width="{CELL_WIDTH - 4}" height="{CELL_HEIGHT}" rx="3"/>'
            f'<text class="cut-label" x="{x + 8}" y="{y + 19}">{escape(cell.label)}</text>'
        )


def columns(steps: Iterable[Step]) -> int:
    """Return how many offsets the pictures of these steps have room for."""
    return max([1, *(replica.log_end_offset for step in steps for replica in step.replicas)])


def cluster(step: Step) -> str:
    """Say who leads, and who is in sync, by the controller's word."""
    leader = f"Broker {step.leader} leads" if step.leader >= 0 else "Nobody leads"
    eligible = f", ELR {brokers(step.eligible_leader_replicas)}" if step.eligible_leader_replicas else ""
    return f"{leader}, epoch {step.leader_epoch}, ISR {brokers(step.in_sync_replicas)}{eligible}"


def _words(step: Step) -> str:
    """Describe the picture in words."""
    said = [cluster(step)]
    for replica in step.replicas:
        held = ", ".join(
            f"{cell.label} of epoch {cell.epoch}{' acknowledged' if cell.acknowledged else ''}"
            for cell in replica.cells
        )
        said.append(
            f"Broker {replica.broker_id} {'is down' if replica.role == 'down' else replica.role}, "
            f"has {held or 'nothing'}, high watermark {replica.high_watermark}, log end offset {replica.log_end_offset}"
        )
    return ". ".join(said) + "."

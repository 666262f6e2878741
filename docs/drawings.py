"""The drawings of the explanations: who sends what to whom. `python docs/drawings.py` makes docs/drawings/*.svg.

A drawing is a list of steps from top to bottom, so that a change of it can be read as a change of text. A test holds
the files against this list.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sparkonce.jobs.shared.drawing import CHARACTER, picture, shape, words

FOLDER = Path(__file__).parent / "drawings"

LANE, ROW, TOP = 240, 44, 64
"""Width of a lane, height of a step, and height of the names above them, in pixels."""
HEAD = """<defs><marker id="head" markerWidth="9" markerHeight="8" refX="8" refY="4" orient="auto">
<path d="M0,0 L9,4 L0,8 z" fill="#2b5fa8"/></marker></defs>"""

STYLE = """
text{font:13px sans-serif;fill:#222}
.name{font-weight:bold;text-anchor:middle}
.label{text-anchor:middle}
.lane{stroke:#bbb;stroke-dasharray:3 4}
.box{fill:#fff;stroke:#999}
.note{fill:#fff6d8;stroke:#d9b44a}
.good{fill:#e3f3e3;stroke:#5a9a5a}
.kill{fill:#fde4e1;stroke:#b3261e}
.arrow{stroke:#2b5fa8;stroke-width:1.5;fill:none}
.refused{stroke:#b3261e;stroke-dasharray:5 3}
"""


@dataclass(frozen=True)
class Message:
    """An arrow from one lane to another; `refused` ones are red."""

    sender: int
    receiver: int
    text: str
    refused: bool = False


@dataclass(frozen=True)
class Box:
    """A box on a lane, or from one lane to another: what is so now (`note`), is safe (`good`), or ends (`kill`)."""

    first: int
    last: int
    text: str
    kind: str = "note"


@dataclass(frozen=True)
class Drawing:
    """A drawing, with the sentence that stands for it where it is not seen."""

    sentence: str
    lanes: tuple[str, ...]
    steps: tuple[Message | Box, ...]


DRAWINGS = {
    "one_commit": Drawing(
        "Tasks write files that nobody sees; one commit of the driver makes the rows and the offsets visible together.",
        ("Driver", "Tasks", "Table's folder", "Delta log"),
        (
            Message(0, 1, "read offsets 100 to 200"),
            Message(1, 2, "Parquet files"),
            Message(1, 0, "names of the files"),
            Box(
                0,
                3,
                "A crash up to here: the files are in no commit, no reader sees them. The batch is written again.",
                "kill",
            ),
            Message(0, 3, "compare: does the log say 100?"),
            Message(0, 3, "one commit: add files + txn orders = 200"),
            Box(
                0,
                3,
                "A crash from here on: rows and offset 200 are there. The batch is recognized and skipped.",
                "good",
            ),
        ),
    ),
    "fencing": Drawing(
        "Two drivers with one appId compare with the same snapshot; Delta lets one commit in, and the other stops.",
        ("Driver A", "Delta log", "Driver B"),
        (
            Message(0, 1, "snapshot 7: offset 100"),
            Message(2, 1, "snapshot 7: offset 100"),
            Box(0, 0, "paused (GC, network)"),
            Message(2, 1, "commit 8: files, 100 to 200"),
            Box(1, 1, "version 8: offset 200", "good"),
            Message(0, 1, "commit: files, 100 to 200, as of 7", refused=True),
            Box(0, 2, "Delta refuses A: its transaction identifier changed since 7. A stops with FencedError.", "kill"),
        ),
    ),
    "two_phase_commit": Drawing(
        "Tasks leave their Kafka transactions open; the driver writes one decision, and then ends them all.",
        ("Driver", "Tasks", "Kafka", "Decision and offsets"),
        (
            Message(1, 2, "records, in a transaction each"),
            Message(1, 0, "producer ids, epochs"),
            Box(
                0,
                3,
                "A crash up to here: no decision. The open transactions are aborted, and the batch is written again.",
                "kill",
            ),
            Message(0, 3, "one transaction: decision + offsets"),
            Box(0, 3, "Decided. Whoever starts next reads the decision, and ends what is still open.", "good"),
            Message(0, 2, "EndTxn(commit) for each task's transaction"),
            Box(2, 2, "read_committed sees all", "good"),
        ),
    ),
    "transaction": Drawing(
        "The decision is one record in __transaction_state; the markers that make it visible follow.",
        ("Producer", "Coordinator", "Partition", "Consumer"),
        (
            Message(0, 1, "InitProducerId: id 7, epoch 3"),
            Message(0, 2, "Produce (id 7, epoch 3)"),
            Message(2, 1, "verify: may 7 write here?"),
            Box(2, 3, "in the log, above the last stable offset: not seen by read_committed"),
            Message(0, 1, "EndTxn(commit)"),
            Box(1, 1, "PrepareCommit: decided", "good"),
            Message(1, 0, "answer; the next epoch is 4"),
            Message(1, 2, "marker COMMIT (id 7)"),
            Message(2, 3, "the last stable offset moves: records"),
            Box(1, 1, "CompleteCommit"),
        ),
    ),
    "leader_epochs": Drawing(
        "The epoch of an offset shows that the log below it was replaced, although the offset exists.",
        ("Query", "Broker 1", "Broker 2"),
        (
            Box(1, 1, "leads, epoch 4"),
            Message(1, 0, "records up to 200, epoch 4"),
            Box(0, 0, "stored: offset 200, epoch 4", "good"),
            Box(1, 1, "dies with 180 to 200", "kill"),
            Box(2, 2, "leads from 180, epoch 5"),
            Box(2, 2, "new records 180 to 250"),
            Message(0, 2, "where does epoch 4 end?"),
            Message(2, 0, "at 180", refused=True),
            Box(
                0,
                2,
                "180 < 200: the log lost records that the table has. The query stops, or says what was lost.",
                "kill",
            ),
        ),
    ),
}


def svg(drawing: Drawing) -> str:
    """Draw it."""
    width, height = LANE * len(drawing.lanes), TOP + ROW * len(drawing.steps) + 16
    parts = [f"<style>{STYLE}</style>", HEAD, shape("rect", width=width, height=height, rx=8, fill="#fafafa")]
    for number, name in enumerate(drawing.lanes):
        parts.append(shape("line", kind="lane", x1=_x(number), y1=48, x2=_x(number), y2=height - 8))
        parts.append(_box(_x(number), 28, len(name) * 8 + 28, name, "box", "name"))
    for number, step in enumerate(drawing.steps):
        y = TOP + ROW * number + 24
        parts.append(_arrow(step, y) if isinstance(step, Message) else _step(step, y))
    return picture(width, height, drawing.sentence, parts, xmlns="http://www.w3.org/2000/svg", width=width) + "\n"


def _x(lane: int) -> int:
    return LANE * lane + LANE // 2


def _arrow(step: Message, y: int) -> str:
    start, end = _x(step.sender), _x(step.receiver)
    kind = "arrow refused" if step.refused else "arrow"
    line = shape("line", kind=kind, x1=start, y1=y, x2=end, y2=y, marker_end="url(#head)")
    middle, width = (start + end) // 2, len(step.text) * CHARACTER + 8
    ground = shape("rect", x=middle - width / 2, y=y - 20, width=width, height=16, fill="#fafafa")
    return line + ground + words(middle, y - 7, step.text, "label")


def _step(step: Box, y: int) -> str:
    least = _x(step.last) - _x(step.first) + 40
    middle = (_x(step.first) + _x(step.last)) // 2
    return _box(middle, y - 2, max(least, len(step.text) * CHARACTER + 24), step.text, step.kind, "label")


def _box(middle: int, y: int, width: float, text: str, kind: str, style: str) -> str:
    around = shape("rect", kind=kind, x=middle - width / 2, y=y - 15, width=width, height=30, rx=5)
    return around + words(middle, y + 5, text, style)


if __name__ == "__main__":
    for name, drawing in DRAWINGS.items():
        (FOLDER / f"{name}.svg").write_text(svg(drawing))

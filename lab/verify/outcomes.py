"""The outcome of a cell: its result, what is wrong with it, and its timeline.

Shared by the crash matrix and the cells on a cluster, so that both are judged by the same rules.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from lab.verify.cells import AnyCell, CellT_co, Moment, Outcome, Result, Shows
from lab.verify.evidence import Evidence, commits, sendings, verdict
from lab.verify.features import broken_rule
from lab.verify.pipelines import Locations, Pipeline

START_UP_TROUBLE = ("Python worker failed to connect back", "CANNOT_OPEN_SOCKET")
"""Parts of the errors of Spark's start-up that a busy machine causes."""
SecondOpinion = Callable[[Locations, Result], str | None]
"""Receives the table's location and the kind of result; returns what else is wrong."""


class Ran(Protocol[CellT_co]):
    """A cell whose runs are over."""

    @property
    def cell(self) -> CellT_co:
        """The cell."""

    @property
    def moments(self) -> Sequence[Moment]:
        """Its events during the runs."""

    @property
    def errors(self) -> Sequence[str]:
        """The errors of its runs."""

    @property
    def acknowledged(self) -> Sequence[tuple[bytes, bytes]]:
        """Key and value of each acknowledged record."""

    @property
    def began_wall_s(self) -> float:
        """Its start, by the wall clock."""

    def pipeline(self) -> Pipeline:
        """Return its query."""


def outcome(
    one: Ran[CellT_co], shows: Shows, most: tuple[int, int], evidence: Callable[[], Evidence],
    second_opinion: SecondOpinion, *, fired: bool, trouble: str | None,
) -> Outcome[CellT_co]:  # fmt: skip
    """Judge a cell.

    Args:
        one: the cell.
        shows: what its result must show.
        most: how many records may be lost or duplicated, and how often one may occur.
        evidence: returns the broker's state; its error makes the cell wrong.
        second_opinion: called if nothing is wrong by then.
        fired: whether the fault has happened.
        trouble: what is wrong with how the cell ran, whatever its result.
    """
    lost = duplicated = 0
    wrong, landed, pipeline = trouble, list[Moment](), one.pipeline()
    try:
        there = evidence()
        landed = sendings(there.delivered, one.began_wall_s)
        found = verdict(pipeline, one.acknowledged, there)
        lost, duplicated = found.lost, found.duplicated
        # Leftovers explain what is lost: readers wait for an unfinished transaction.
        wrong = wrong or "; ".join(there.left_behind) or found.contradicts(shows, *most)
        wrong = wrong or second_opinion(pipeline, Result(pipeline.result)) or broken_rule(pipeline)
    except Exception as error:  # an unreadable table is a finding, not the end of the run
        wrong = wrong or f"the result cannot be judged: {type(error).__name__}: {error}"
    moments = sorted([*one.moments, *landed, *commits(pipeline, one.began_wall_s)], key=lambda each: each.at_s)
    return Outcome(
        cell=one.cell,
        must_show=shows,
        records=len(one.acknowledged),
        lost=lost,
        duplicated=duplicated,
        fired=fired,
        wrong=wrong,
        moments=tuple(moments),
        errors=tuple(one.errors),
        seconds=max((moment.at_s for moment in moments), default=0.0),
    )


def trouble_of_a_busy_machine(found: Outcome[AnyCell], *more: str) -> str | None:
    """Return the error for which a cell says nothing about its pipeline, so that it is run again; None without one.

    ``more`` are further parts of such errors, beside `START_UP_TROUBLE`. Wrong rows that no error explains are a
    finding, and not retried.
    """
    if found.has_wrong_rows:
        return None
    return next((each for each in found.errors if any(words in each for words in (*START_UP_TROUBLE, *more))), None)

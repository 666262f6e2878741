"""The pages *Proof*: a run of `sparkonce verify` as it goes on, the simulator's seeds and the stories, step by step."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from sparkonce.jobs.lab.story import drawing
from sparkonce.jobs.lab.story.catalogue import STORIES, Story
from sparkonce.jobs.lab.story.view import Telling
from sparkonce.jobs.lab.verify import report
from sparkonce.jobs.lab.verify.cells import Cell
from sparkonce.jobs.lab.verify.cluster.cells import ClusterCell
from sparkonce.jobs.lab.verify.cluster.section import section as of_the_cluster
from sparkonce.jobs.lab.verify.matrix import full
from sparkonce.jobs.lab.verify.progress import Progress, read_progress
from sparkonce.jobs.lab.verify.results import what_is_wrong
from sparkonce.jobs.lab.verify.setback.cells import SetBackCell
from sparkonce.jobs.lab.verify.setback.tables import section as of_setbacks
from sparkonce.jobs.ui.delta.paced import Paced
from sparkonce.jobs.ui.page import Asked, NoSuchThingError, Page
from sparkonce.jobs.ui.proof.seeds import SeedError, bugs, picture_after, run_seed
from sparkonce.jobs.ui.site import Site

AROUND = 12
"""Events of a trace that are listed before and after the one that is shown."""

_progress: Paced[Progress | None] = Paced()


def _run(site: Site) -> Progress | None:
    folder = site.given.folder
    return None if folder is None else _progress.get(folder, lambda: read_progress(folder))


def _data(site: Site, _: Asked) -> Mapping[str, Any]:
    run = _run(site)
    data: dict[str, Any] = {"run": run, "stories": STORIES, "bugs": bugs()}
    if run is not None:
        crashes = [each for each in run.outcomes if isinstance(each.cell, Cell)]
        chosen = set(run.chosen)
        data |= {
            "counts": [report.COUNT_HEAD, *report.counts(crashes)],
            "legend": report.legend(),
            "matrix": report.matrix(crashes, [each for each in full() if each.name in chosen], "/proof/verify/"),
            "wrong": [(each.cell.name, why) for each in run.outcomes if (why := what_is_wrong(each)) is not None],
            "more": (
                of_setbacks([each for each in run.outcomes if isinstance(each.cell, SetBackCell)])
                + of_the_cluster([each for each in run.outcomes if isinstance(each.cell, ClusterCell)])
            ),
        }
    return data


def _cell(site: Site, asked: Asked) -> Mapping[str, Any]:
    run, name = _run(site), asked.path["cell"]
    found = next((each for each in run.outcomes if each.cell.name == name), None) if run else None
    if found is None or not isinstance(found.cell, Cell):
        raise NoSuchThingError(f"No cell {name} was judged in the run that is shown.")
    return {"outcome": found, "words": report.cell_words(found.cell), "explained": report.explained(found)}


def _seed(_: Site, asked: Asked) -> Mapping[str, Any]:
    bug = asked.query.get("bug", "")
    if bug and bug not in bugs():
        raise NoSuchThingError(f"There is no bug {bug} to plant.")
    try:
        run = run_seed(asked.number("seed", 0), bug)
    except SeedError as error:
        raise NoSuchThingError(str(error)) from error
    last = max(len(run.lines) - 1, 0)
    at = asked.number("event", 0, last)
    faults = [number for number, line in enumerate(run.lines) if line.is_fault]
    first = max(at - AROUND, 0)
    return {
        "run": run,
        "bugs": bugs(),
        "at": at,
        "last": last,
        "next_fault": next((each for each in faults if each > at), None),
        "fault_before": next((each for each in reversed(faults) if each < at), None),
        "around": list(enumerate(run.lines[first : at + AROUND + 1], first)),
        "picture": picture_after(run.lines[: at + 1]),
    }


@lru_cache(64)
def _played(name: str, number: int) -> tuple[Story, Telling] | None:
    story = next((each for each in STORIES if each.name == name), None)
    if story is None or number >= len(story.variants):
        return None
    return story, story.variants[number].play()


def _story(_: Site, asked: Asked) -> Mapping[str, Any]:
    rule = asked.number("rule", 0)
    played = _played(asked.path["story"], rule)
    if played is None:
        raise NoSuchThingError(f"There is no story {asked.path['story']} by rule {rule}.")
    story, telling = played
    at = asked.number("step", 0, max(len(telling.steps) - 1, 0))
    data: dict[str, Any] = {
        "story": story,
        "telling": telling,
        "rule": rule,
        "at": at,
        "legend": drawing.legend(),
    }
    variants = (_played(story.name, each) for each in range(len(story.variants)))
    data["rules"] = [each[1].rule for each in variants if each is not None]
    if telling.steps:
        step, before = telling.steps[at], telling.steps[at - 1] if at else None
        data |= {"step": step, "cluster": drawing.cluster(step)}
        data["picture"] = drawing.logs(step, before, drawing.columns(telling.steps), "s")
    return data


PROOF = Page("/proof", "Proof", "proof.html", _data, menu="Proof")
PROOF_CELL = Page("/proof/verify/{cell}", "Cell", "proof_cell.html", _cell, interval_s=5.0)
PROOF_SEED = Page("/proof/seed", "Seed", "proof_seed.html", _seed, interval_s=60.0)
PROOF_STORY = Page("/proof/stories/{story}", "Story", "proof_story.html", _story, interval_s=60.0)

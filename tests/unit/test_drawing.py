"""Pictures: no text of theirs becomes markup, signs keep apart, and nothing else draws or writes tables."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from itertools import pairwise
from pathlib import Path

from sparkonce.jobs.shared.drawing import CHARACTER, Mark, sparkline, strip, timeline
from tests.cases import each_case

PROJECT = Path(__file__).resolve().parents[2]
EVIL = """<script x='&"'>"""
FORMS = ("line", "square", "circle", "cross")
MARKS = [Mark(EVIL, EVIL, 1.0, end, lane, form, EVIL) for end in (None, 2.0) for lane in (None, 0) for form in FORMS]
OF_ONE_MODULE = {
    r"<svg|shape\(.svg": {"jobs/shared/drawing.py"},
    # Pages have templates; the matrix of the crash matrix is made of tiles.
    r"<table": {"sparkonce/notebook.py", "lab/verify/report.py"},
}


@each_case(
    "drawn",
    [
        timeline([EVIL], MARKS, [EVIL, EVIL, EVIL], EVIL, 3.0),
        timeline([EVIL], [], [EVIL, EVIL], EVIL, 0.0),
        strip(MARKS, 0, 3, EVIL),
        sparkline([(0.0, 0.0), (0.0, 2.0)], EVIL),
    ],
)
def test_all_text_is_escaped(drawn: str) -> None:
    root = ElementTree.fromstring(drawn)
    assert root.attrib["aria-label"] == EVIL
    assert {each.tag for each in root.iter()} <= {
        "svg",
        "line",
        "rect",
        "circle",
        "path",
        "polygon",
        "polyline",
        "text",
        "title",
    }
    assert {each.text for each in root.iter() if each.tag in ("text", "title")} <= {EVIL}


@each_case("starts", [(0.0,) * 5, (9.9, 10.0, 10.0), (0.0, 5.0, 5.1, 10.0)])
def test_signs_keep_apart_and_within_the_picture(starts: tuple[float, ...]) -> None:
    sign = "sign"
    root = ElementTree.fromstring(
        timeline(["lane"], [Mark("", "", at, lane=0, sign=sign) for at in starts], "ab", "", 10.0)
    )
    middles = [float(each.attrib["x"]) for each in root.iter("text") if each.text == sign]
    half = CHARACTER * len(sign) / 2
    assert len(middles) == len(starts)
    assert all(second - first >= 2 * half for first, second in pairwise(middles))
    assert half <= middles[0]
    assert middles[-1] + half <= float(root.attrib["viewBox"].split()[2])


@each_case("markup", OF_ONE_MODULE)
def test_one_module_draws_and_one_writes_tables(markup: str) -> None:
    folders = ("broker_lite", "connectors", "docs", "exactly_once", "jobs", "lab", "offset_store", "registry_lite")
    files = [path for folder in folders for path in (PROJECT / folder).rglob("*.py")]
    files += [PROJECT / "sparkonce/notebook.py", *(PROJECT.glob("jobs/ui/pages/*.html") if "svg" in markup else ())]
    found = {str(path.relative_to(PROJECT)) for path in files if re.search(markup, path.read_text())}
    assert found == OF_ONE_MODULE[markup]

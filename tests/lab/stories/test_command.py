"""The command `sparkonce story`: what it prints, and the page that it draws."""

from __future__ import annotations

import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

from sparkonce.jobs.cli.main import main
from sparkonce.jobs.lab.story import __main__ as command
from sparkonce.jobs.lab.story import catalogue
from sparkonce.jobs.lab.story.catalogue import STORIES, Story, Variant
from sparkonce.jobs.lab.story.drawing import page
from sparkonce.jobs.lab.story.view import Telling
from sparkonce.jobs.shared.exit_status import FAILED, GOOD, USAGE

DOCS = Path(__file__).parents[3] / "docs" / "stories.md"
VOID = {"meta", "br", "hr"}


class Page(HTMLParser):
    """Checks that every element is closed where it should be; keeps ids and what refers to them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: Counter[str] = Counter()
        self.references: set[str] = set()
        self.elements: Counter[str] = Counter()
        self.outside: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements[tag] += 1
        for name, value in attrs:
            if name == "id":
                self.ids[value or ""] += 1
            elif name == "aria-labelledby":
                self.references |= set((value or "").split())
            elif name == "href" and (value or "").startswith("#"):
                self.references.add((value or "")[1:])
            elif name in ("href", "src"):
                self.outside.append(value or "")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements[tag] += 1

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_every_story_is_told(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "stories.html"
    assert main(["story", "all", "--html", str(file)]) == GOOD
    results = [line for line in capsys.readouterr().out.splitlines() if line.startswith("RESULT ")]
    assert len(results) == sum(len(story.variants) for story in STORIES)
    assert "RESULT story=kip-101-loss rule=high-watermark lost=1 diverged=0" in results
    assert "RESULT story=kip-101-loss rule=leader-epoch lost=0 diverged=0" in results
    assert all(re.fullmatch(r"RESULT story=\S+ rule=\S+( \w+=\d+)+", line) for line in results)
    _is_well_formed(file.read_text(encoding="utf-8"))


def _is_well_formed(text: str) -> None:
    found = Page(text)
    assert all(count == 1 for count in found.ids.values())
    assert found.references <= found.ids.keys()
    assert found.outside == [], "a page holds everything in itself"
    assert "script" not in found.elements
    pictures = re.findall(r"<svg.*?</svg>", text, flags=re.DOTALL)
    assert len(pictures) == found.elements["svg"] > 100
    for picture in pictures:
        drawn = ElementTree.fromstring(picture.replace("&#9733;", "*"))
        assert drawn.get("role") == "img"
        assert [each.tag for each in drawn[:2]] == ["title", "desc"]
        assert all(each.text for each in drawn[:2])


def test_a_picture_shows_every_record_and_what_was_cut_off() -> None:
    (story,) = catalogue.chosen("kip-101-loss")
    telling = story.variants[0].play()
    text = page([(story, telling)])
    pictures = re.findall(r"<svg.*?</svg>", text, flags=re.DOTALL)
    assert len(pictures) == len(telling.steps)
    for step, picture in zip(telling.steps, pictures, strict=True):
        cells = sum(len(replica.cells) for replica in step.replicas)
        assert len(re.findall(r'<rect class="e\d', picture)) == cells
        assert picture.count('class="bar"') == len(step.replicas)
    assert ['<rect class="cut"' in picture for picture in pictures] == [False, False, False, True, False, True]
    assert 'class="verdict bad">lost 1<' in text
    assert 'class="verdict good">lost 0<' in page([(story, story.variants[1].play())])


@pytest.mark.parametrize(("which", "rules"), [("--old", [True]), ("--new", [False]), ("--both", [True, False])])
def test_the_rules_are_chosen(which: str, rules: list[bool], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["story", "kip-903", which]) == GOOD
    told = [line for line in capsys.readouterr().out.splitlines() if line.startswith("RESULT ")]
    assert ["lost=2" in line for line in told] == rules


def test_the_list_names_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["story", "--list"]) == GOOD
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [story.name for story in STORIES]


def test_a_rule_that_a_story_does_not_have_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["story", "quorum", "--old"]) == USAGE
    assert capsys.readouterr().err == "sparkonce story: quorum has no old rule\n"


@pytest.mark.parametrize("words", [[], ["kip-1"], ["quorum", "--list"], ["quorum", "--old", "--new"]])
def test_what_cannot_be_asked(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["story", *words])
    assert ended.value.code == USAGE
    assert "usage: sparkonce story" in capsys.readouterr().err


def test_a_page_that_cannot_be_written_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["story", "acks", "--html", str(tmp_path / "none" / "x.html")])
    assert ended.value.code == USAGE
    printed = capsys.readouterr()
    assert f"the folder {tmp_path / 'none'} does not exist" in printed.err
    assert not printed.out, "it is found out before anything is told"


def test_a_story_that_does_not_show_its_fault_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def nothing() -> Telling:
        return Telling("none", (), {"lost": 0, "diverged": 0})

    story = Story("kip-903", "here", "nothing happens", "lost", (Variant(True, nothing),))
    monkeypatch.setattr(command, "chosen", lambda _: [story])
    assert main(["story", "kip-903"]) == FAILED
    assert "lost should be above 0" in capsys.readouterr().err


def test_the_docs_name_every_story_and_its_lines_are_true(capsys: pytest.CaptureFixture[str]) -> None:
    text = DOCS.read_text(encoding="utf-8")
    for story in STORIES:
        assert f"`{story.name}`" in text
    assert main(["story", "all"]) == GOOD
    printed = capsys.readouterr().out
    shown = re.findall(r"^( *\d+\..*|RESULT .*|      .*)$", text, flags=re.MULTILINE)
    assert len(shown) > 10
    assert [line for line in shown if line not in printed] == []

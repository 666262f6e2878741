from __future__ import annotations

import pytest
from jinja2 import DictLoader

from sparkonce.jobs.ui import rendering
from sparkonce.jobs.ui.rendering import Rendered, rate, render

TEMPLATE = (
    "<h1>{{ title }}</h1>{% for name, value in rows.items() %}"
    "{% call live('p', name, class_=value) %}{{ value }}{% endcall %}{% endfor %}"
)


@pytest.fixture(autouse=True)
def template(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendering._ENVIRONMENT, "loader", DictLoader({"test.html": TEMPLATE}))


def rendered(title: str = "t", **rows: str) -> Rendered:
    return render("test.html", {"title": title, "rows": rows})


def test_the_whole_has_all_parts_and_escapes_them() -> None:
    made = rendered(a="1", b='<"')
    assert made.whole == '<h1>t</h1><p id="a" class="1">1</p><p id="b" class="&lt;&#34;">&lt;&#34;</p>'


def test_names_of_files_that_are_not_utf8_are_escaped() -> None:
    assert rendered("\udcff", a="\udcfe").whole == '<h1>\\udcff</h1><p id="a" class="\\udcfe">\\udcfe</p>'


def test_a_rate_is_none_only_where_nothing_comes() -> None:
    assert [rate(each) for each in (None, 0.0, 0.3, -4.0, 12.4)] == ["\N{EN DASH}", "0", "0.3", "-4.0", "12"]


def test_only_the_parts_that_differ_are_sent() -> None:
    before, after = rendered(a="1", b="2"), rendered(a="1", b="3")
    assert after.changed_since(before) == {"b": '<p id="b" class="3">3</p>'}
    assert after.digest != before.digest
    assert rendered(a="1", b="2").digest == before.digest


def test_the_whole_is_replaced_if_something_else_differs() -> None:
    before = rendered(a="1")
    assert rendered(a="1", b="2").changed_since(before) is None
    assert rendered("u", a="1").changed_since(before) is None


def test_a_part_is_there_once() -> None:
    with pytest.raises(AssertionError, match="is not an id"):
        rendered(**{"not an id": "1"})


@pytest.mark.parametrize("text", ["\0", "\0a\0", "\0no part\0", "\0\0"])
def test_text_with_nul_characters_is_text(text: str) -> None:
    assert rendered(title=text, a=text).whole == f'<h1>{text}</h1><p id="a" class="{text}">{text}</p>'


def test_ids_of_different_texts_differ() -> None:
    texts = ["a/b", "größe", "", ":", "\0", rendering._as_id("a/b"), "x" + rendering._as_id("a/b")[1:]]
    ids = {rendering._as_id(text) for text in texts}
    assert len(ids) == len(texts)
    assert all(rendering.ID.fullmatch(f"g-{each}") for each in ids)

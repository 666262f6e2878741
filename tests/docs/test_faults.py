"""Every example of docs/faults.md runs, and every effect has one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sparkonce.broker_lite.faults import Faults

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "faults.md").read_text()
PRELUDE, *EXAMPLES = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
TITLES = [
    title for title, body in re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", TEXT, re.DOTALL | re.MULTILINE) if "```" in body
]


@pytest.fixture(scope="module")
def names() -> Iterator[dict[str, Any]]:
    names: dict[str, Any] = {}
    exec(PRELUDE, names)  # what the page says
    yield names
    names["broker"].close()


@pytest.mark.parametrize("code", EXAMPLES, ids=TITLES)
def test_an_example_runs(code: str, names: dict[str, Any]) -> None:
    exec(code, dict(names))


def test_the_records_are_there_once(names: dict[str, Any]) -> None:
    consumer = names["Consumer"]({**names["servers"], "group.id": "check", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    sent = set(re.findall(r'(?:send\(|"orders", )"([^"]*)"', PRELUDE + "".join(EXAMPLES))) - {"refused"}
    got: list[str] = []
    while len(got) < len(sent):
        message = consumer.poll(20)
        assert message is not None, f"{sent - set(got)} did not come"
        got.append(message.value().decode())
    consumer.close()
    assert sorted(got) == sorted(sent)


def test_every_fault_has_an_example() -> None:
    effects = {name for name in vars(Faults) if not name.startswith("_")} - {
        "attach", "detach", "note", "restart_wanted",
    }  # fmt: skip
    assert len(EXAMPLES) == len(TITLES)
    assert {name for name in effects if f"faults.{name}(" not in TEXT} == set()

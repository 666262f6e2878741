"""The example of docs/security.md runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "security.md").read_text()


def test_the_example(capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    names: dict[str, object] = {}
    exec(example, names)  # what the page says
    names.clear()  # ends the clients
    assert "alice may write" in capsys.readouterr().out

"""`make integration` runs every test that takes its broker from `KAFKA`."""

from __future__ import annotations

import re
from pathlib import Path

from tests.containers.run import FOLDERS

TESTS = Path(__file__).resolve().parents[1]
CHOSEN = re.compile(r"\bkafka: Any\b|\bmark\.(kafka|container)\b")


def test_the_list_has_every_folder_whose_tests_take_their_broker_from_the_fixture() -> None:
    listed = [TESTS.parent / folder for folder in FOLDERS]
    choosing = [path for path in TESTS.rglob("test_*.py") if path != Path(__file__) and CHOSEN.search(path.read_text())]
    assert choosing
    forgotten = [path for path in choosing if not any(path.is_relative_to(folder) for folder in listed)]
    assert forgotten == []

"""What is tried out in a clone leaves nothing that git would ask about."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkonce.broker_lite.__main__ import DEFAULT_DATA_DIR
from sparkonce.broker_lite.config import file_settings

PROJECT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("source", ["default", "conf/broker.properties"])
def test_the_data_of_a_broker_is_ignored(source: str) -> None:
    folder = DEFAULT_DATA_DIR if source == "default" else file_settings(str(PROJECT / source))[0]["log.dirs"]
    assert f"{folder}/" in (PROJECT / ".gitignore").read_text().splitlines()

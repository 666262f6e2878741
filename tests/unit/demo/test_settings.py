"""The demo's configuration is read, and a bad one is refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkonce.exactly_once.crash_points import SinkPoint
from sparkonce.jobs.demo.settings import DEFAULT_CONFIG, Kill, Settings, SettingsError


def test_the_file_in_conf_holds_what_the_demo_promises() -> None:
    settings = Settings.read(DEFAULT_CONFIG)
    assert len({kill.point for kill in settings.kills}) == 5
    assert Kill(SinkPoint.AFTER_COMMIT, 5, True) in settings.kills
    assert settings.broker_properties.exists()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('point = "source.planned"', 'point = "source.plant"', "source.plant"),
        ("partitions = 4", "", "'partitions' is missing"),
        ("[job]", "[job", "demo.toml"),
    ],
)
def test_a_bad_file_is_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = tmp_path / "demo.toml"
    path.write_text(DEFAULT_CONFIG.read_text().replace(old, new))
    with pytest.raises(SettingsError, match=message):
        Settings.read(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"gone\.toml"):
        Settings.read(tmp_path / "gone.toml")

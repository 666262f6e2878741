"""docs/kafka_sink_options.md says what is declared: every option of the sink and every setting of its producer."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from connectors.kafka_once.settings import COMMON, SECURITY, ClientSettings
from connectors.kafka_once.sink.options import BATCH_OPTIONS, OPTIONS
from connectors.kafka_once.sink.settings import REFUSED, SETTINGS, WITHOUT_EFFECT

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "kafka_sink_options.md").read_text()
DEFAULTS = {
    "deliveryGuarantee": "`exactly-once`",
    "offsetStore": "`group:<appId>`",
    "appId": "required for streams",
    "checkpointLocation": "required",
}


def rows(title: str) -> list[tuple[str, ...]]:
    """Give the cells of the table under a heading."""
    _, _, section = PAGE.partition(f"\n## {title}\n")
    lines = [line for line in section.partition("\n## ")[0].splitlines() if line.startswith("|")]
    return [tuple(cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]) for line in lines[2:]]


def shown(default: Any) -> str:
    if default is None:
        return ""
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


def table(expected: list[tuple[str, ...]]) -> str:
    return "\n".join("| " + " | ".join(cells) + " |" for cells in expected)


def test_the_options() -> None:
    expected = [
        (
            f"`{option.name}`",
            "both" if option in BATCH_OPTIONS.options else "streams",
            DEFAULTS.get(option.name, shown(option.default)),
            option.doc,
        )
        for option in OPTIONS.options
    ]
    assert rows("Options") == expected, table(expected)


def test_the_settings_that_are_used() -> None:
    expected = [(f"`{option.name}`", shown(option.default), option.doc) for option in SETTINGS]
    assert rows("`kafka.*`: records")[: len(expected)] == expected, table(expected)


def test_the_settings_of_the_connection() -> None:
    named = {name for cells in rows("`kafka.*`: the connection") for name in re.findall(r"`([^`]+)`", cells[0])}
    assert named == {*COMMON, *SECURITY}
    defaults = ClientSettings(())
    listed = {cells[0]: cells[1] for cells in rows("`kafka.*`: the connection")}
    for name, (attribute, _) in COMMON.items():
        if name not in ("bootstrap.servers", "receive.buffer.bytes"):
            assert listed[f"`{name}`"] == f"`{getattr(defaults, attribute)}`"


def test_the_settings_without_effect() -> None:
    reasons: dict[str, list[str]] = {}
    for name, why in WITHOUT_EFFECT.items():
        reasons.setdefault(why, []).append(f"`{name}`")
    expected = [(", ".join(names), why) for why, names in reasons.items()]
    assert rows("`kafka.*`: without effect") == expected, table(expected)


def test_the_settings_that_are_refused() -> None:
    reasons: dict[str, list[str]] = {}
    for name, instead in REFUSED.items():
        reasons.setdefault(instead, []).append(f"`{name}`")
    expected = [(", ".join(names), instead) for instead, names in reasons.items()]
    assert rows("`kafka.*`: refused")[: len(expected)] == expected, table(expected)

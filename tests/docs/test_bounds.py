"""docs/limits.md names every bound of the broker with its value."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

from sparkonce.broker_lite.config import BrokerConfig

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "limits.md").read_text()
MODULES = ("sparkonce.broker_lite.server.limits", "sparkonce.kafka.protocol.limits")


def documented() -> dict[str, str]:
    return dict(re.findall(r"^\| `([a-zA-Z_.]+)` \| ([^|]+?) \|", PAGE, re.MULTILINE))


def test_the_page_names_every_bound_with_its_value() -> None:
    wanted = {
        f"{module.removeprefix('sparkonce.')}.{name}": value
        for module in MODULES
        for name, value in vars(import_module(module)).items()
        if name.isupper()
    }
    told = documented()
    assert {name for name in wanted if name not in told} == set()
    for name, shown in told.items():
        if "_" in name and name.rpartition(".")[2].isupper():
            module, _, constant = name.rpartition(".")
            value = getattr(import_module(f"sparkonce.{module}"), constant)
        else:
            value = BrokerConfig.of({})
            value = getattr(value, name.replace(".", "_"))
        assert number(shown) == value, f"{name} is {value}"


def number(text: str) -> float:
    """Read 64 KiB, 100,000 or 30 s."""
    match = re.fullmatch(r"(-?[\d,.]+)(?: (KiB|MiB|GiB|s|ms))?", text)
    assert match is not None, text
    return float(match[1].replace(",", "")) * {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}.get(match[2] or "", 1)

"""docs/apis.md says what `protocol/apis.py` does, of every API that Apache Kafka 4.3 lists."""

from __future__ import annotations

import json
import re
from pathlib import Path

from sparkonce.kafka.protocol.apis import APIS

PROJECT = Path(__file__).resolve().parents[2]
PAGE = (PROJECT / "docs" / "apis.md").read_text()
KAFKA: dict[str, tuple[str, int, int]] = json.loads(
    (PROJECT / "tests" / "unit" / "broker" / "kafka_4_3_0.json").read_text()
)["apis"]


def rows(title: str) -> list[list[str]]:
    """Return the cells of the table under a heading."""
    _, _, section = PAGE.partition(f"\n## {title}\n")
    table = section.partition("\n## ")[0]
    lines = [line for line in table.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]


def versions(low: int, high: int) -> str:
    return str(low) if low == high else f"{low} to {high}"


def test_what_is_served_is_listed_with_its_versions() -> None:
    listed = {(name, int(key), served, kafka) for name, key, served, kafka, _ in rows("Served")}
    assert listed == {
        (
            api.codec_name,
            int(api.key),
            versions(api.min_version, api.max_version),
            versions(*KAFKA[str(int(api.key))][1:]),
        )
        for api in APIS.values()
    }


def test_what_is_not_served_is_listed_with_a_reason() -> None:
    absent = rows("Absent")
    assert all(why.endswith(".") for _, _, _, why in absent)
    expected = {(name, key, versions(low, high)) for key, (name, low, high) in KAFKA.items() if int(key) not in APIS}
    assert {(name, key, kafka) for name, key, kafka, _ in absent} == expected


def test_no_version_is_served_that_kafka_has_not() -> None:
    for api in APIS.values():
        _, low, high = KAFKA[str(int(api.key))]
        assert low <= api.min_version <= api.max_version <= high


def test_every_row_of_what_is_served_says_what_it_covers() -> None:
    for name, _, _, _, covers in rows("Served"):
        assert re.search(r"KIP-\d+|PLAIN", covers), name

"""The page of the experiments names every test of theirs, and no other."""

from __future__ import annotations

import re
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
TEXT = (PROJECT / "docs" / "internals" / "experiments.md").read_text()
NAMED = set(re.findall(r"`(test_\w+\.py)::(test_\w+)`", TEXT))


def test_every_experiment_is_on_the_page() -> None:
    written = {
        (path.name, name)
        for path in (PROJECT / "tests" / "experiments").glob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE)
    }
    assert written == NAMED


def test_the_numbers_are_those_of_the_tests() -> None:
    def constant(file: str, name: str) -> str:
        found = re.search(rf"^{name} = (.*)$", (PROJECT / "tests" / "experiments" / file).read_text(), re.MULTILINE)
        assert found is not None
        return found.group(1)

    assert f"A batch is {int(constant('test_fetch_sizes.py', 'BATCH_BYTES')):,} bytes" in TEXT
    assert f"{int(constant('test_fetch_sizes.py', 'TWO_RECORDS_BYTES')):,} bytes, from offset 0" in TEXT
    assert f"{constant('test_partitioners.py', 'APART')} of 100 land apart" in TEXT
    assert f"*Not quite*: {constant('test_assignments.py', 'KAFKAS').strip('[]')}." in TEXT
    assert f"none left: {constant('test_assignments.py', 'THE_ARTICLES').strip('[]')} |" in TEXT


def test_the_clients_tests_are_where_the_page_says() -> None:
    section = re.search(r"^## Which clients.*?(?=^## )", TEXT, re.DOTALL | re.MULTILINE)
    assert section is not None
    files = set(re.findall(r"`(test_\w+\.py)`", section.group()))
    assert files
    assert {name for name in files if not (PROJECT / "tests" / "interop" / name).exists()} == set()


def test_the_clients_versions_are_those_of_the_tests() -> None:
    pinned = dict(re.findall(r"^([\w-]+)==(\d+\.\d+)", (PROJECT / "constraints.txt").read_text(), re.MULTILINE))
    named = dict(re.findall(r"^\| (confluent-kafka|kafka-python|aiokafka) (\d+\.\d+) \|", TEXT, re.MULTILINE))
    assert named == {name: pinned[name] for name in ("confluent-kafka", "kafka-python", "aiokafka")}

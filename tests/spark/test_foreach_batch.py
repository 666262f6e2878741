"""The programs of docs/foreach_batch.md, run as they stand there, and failing where a crash hurts most."""

from __future__ import annotations

import json
import re
import sqlite3
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from lab.crash_plans import arm, disarm, fired

pytestmark = pytest.mark.spark
PAGE = (Path(__file__).resolve().parents[2] / "docs" / "foreach_batch.md").read_text()
DATABASE_PROGRAM, FILE_PROGRAM = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


class Orders:
    """A topic of the shared broker, and a program of the page that reads it."""

    def __init__(self, bootstrap_servers: str, folder: Path) -> None:
        self.bootstrap_servers, self.folder = bootstrap_servers, folder
        self.topic = f"orders-{uuid.uuid4().hex[:8]}"
        self.sent = 0

    def send(self, count: int) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap_servers})
        for number in range(self.sent, self.sent + count):
            producer.produce(self.topic, str(number).encode(), b"customer %d" % (number % 3))
        assert producer.flush(60) == 0
        self.sent += count

    def run(self, program: str, guarantee: str = "AT_LEAST_ONCE") -> None:
        text = program.replace("localhost:9092", self.bootstrap_servers).replace("/data/", f"{self.folder}/")
        text = text.replace('"subscribe", "orders"', f'"subscribe", "{self.topic}"')
        text = text.replace("AT_LEAST_ONCE", guarantee)
        namespace: dict[str, Any] = {"__name__": "a program of the page"}
        exec(compile(text, "docs/foreach_batch.md", "exec"), namespace)

    def expected(self, times: int = 1) -> Counter[tuple[str, str]]:
        return Counter({(f"customer {number % 3}", str(number)): times for number in range(self.sent)})


@pytest.fixture
def orders(kafka: Any, spark: SparkSession, tmp_path: Path) -> Orders:
    return Orders(kafka.bootstrap_servers, tmp_path)


def in_database(orders: Orders) -> Counter[tuple[str, str]]:
    connection = sqlite3.connect(orders.folder / "orders.db")
    try:
        return Counter(connection.execute("SELECT customer, item FROM orders"))
    finally:
        connection.close()


def in_file(orders: Orders) -> Counter[tuple[str, str]]:
    path = orders.folder / "orders-json" / "orders.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return Counter((line["customer"], line["item"]) for line in lines)


def test_a_database_has_each_row_once(orders: Orders, faults: Path) -> None:
    orders.send(100)
    orders.run(DATABASE_PROGRAM)
    assert in_database(orders) == orders.expected()
    for point in ("sink.before_commit", "sink.after_commit"):
        orders.send(50)
        plan = arm(faults, point, f"{point}=raise")
        with pytest.raises(StreamingQueryException, match="injected failure"):
            orders.run(DATABASE_PROGRAM)
        assert fired(plan)
        disarm(faults, point)
        orders.run(DATABASE_PROGRAM)
        assert in_database(orders) == orders.expected()


def test_a_failure_between_rows_and_commit_leaves_nothing(orders: Orders) -> None:
    orders.send(30)
    broken = DATABASE_PROGRAM.replace(
        "rows.toLocalIterator())\n", "rows.toLocalIterator())\n    raise OSError('broken')\n", 1
    )
    assert broken != DATABASE_PROGRAM
    with pytest.raises(StreamingQueryException, match="broken"):
        orders.run(broken)
    orders.run(DATABASE_PROGRAM)
    assert in_database(orders) == orders.expected()


@pytest.mark.parametrize(("guarantee", "times"), [("AT_LEAST_ONCE", 2), ("AT_MOST_ONCE", 0)])
def test_a_crash_between_the_two_writes(orders: Orders, faults: Path, guarantee: str, times: int) -> None:
    orders.send(30)
    plan = arm(faults, "crash", "sink.between_writes=raise")
    with pytest.raises(StreamingQueryException, match="injected failure"):
        orders.run(FILE_PROGRAM, guarantee)
    assert fired(plan)
    orders.run(FILE_PROGRAM, guarantee)
    assert in_file(orders) == +orders.expected(times)

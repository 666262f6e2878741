"""`make test` starts with what takes longest by the table of durations."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from typing import Any

from tests.conftest import APART, OWN_DRIVERS, ByFile
from tests.durations import known_seconds

PROJECT = Path(__file__).resolve().parents[2]


class Node:
    def __init__(self, tests: list[str]) -> None:
        self.tests = tests
        self.sent: list[str] = []

    def send_runtest_some(self, indices: list[int]) -> None:
        self.sent += [self.tests[index] for index in indices]


def test_files_that_are_given_out_by_name_are_there() -> None:
    assert known_seconds()
    assert [name for name in OWN_DRIVERS + APART if not (PROJECT / name).is_file()] == []


def test_the_longest_go_first_and_the_others_in_their_order() -> None:
    files = ["tests/a/test_many.py", OWN_DRIVERS[0], "tests/a/test_few.py", "tests/spark/test_sink.py"]
    tests = [f"{file}::test_it" for file in files]
    scheduler: Any = ByFile.__new__(ByFile)  # a whole one needs xdist's configuration and processes
    node: Any = Node(tests)
    scheduler.registered_collections, scheduler.assigned_work = {node: tests}, {}
    scheduler.workqueue = OrderedDict((scheduler._split_scope(test), {test: False}) for test in tests)
    scheduler.seconds = {"spark": 9.0, OWN_DRIVERS[0]: 8.0}
    while scheduler.workqueue:
        scheduler._assign_work_unit(node)
    assert node.sent == [tests[3], tests[1], tests[0], tests[2]]

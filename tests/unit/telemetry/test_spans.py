"""Ids that processes agree on, when spans are wanted, and the notes of planners."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from sparkonce.connectors.telemetry.plans import KEPT_S, PlanNotes
from sparkonce.connectors.telemetry.spans import BatchTrace, Interval
from sparkonce.connectors.telemetry.switches import metrics_are_on, traces_are_on

END = {"source": "kafka", "topics": {"t": {"partitions": {"0": {"next": 5}}}}}
LINE = json.dumps({"topics": END["topics"], "source": "kafka"})
"""The same, in another order: Spark's text of it need not be ours."""


def test_a_repeat_of_a_batch_is_in_its_trace_and_has_its_own_root() -> None:
    first, again, next_one = BatchTrace("q", "r", 3), BatchTrace("q", "s", 3), BatchTrace("q", "r", 4)
    assert first.trace_id == again.trace_id == BatchTrace("q", "r", 3).trace_id
    assert len({first.root_id, again.root_id, next_one.root_id}) == 3
    assert next_one.trace_id != first.trace_id
    assert 0 < first.trace_id < 1 << 128
    assert 0 < first.root_id < 1 << 64


def test_a_step_is_a_child_of_the_root_or_of_another_step() -> None:
    trace = BatchTrace("q", "r", 3)
    root = trace.root(Interval(1, 9), {"a": 1}, "Error")
    step = trace.child("write", Interval(2, 3), {})
    inner = trace.child("read", Interval(2, 3), {}, parent_id=step.span_id)
    assert (root.span_id, root.parent_id, root.error) == (trace.root_id, None, "Error")
    assert (step.parent_id, inner.parent_id) == (root.span_id, step.span_id)
    assert step.attributes == {"sparkonce.query.id": "q", "sparkonce.query.run_id": "r", "sparkonce.batch.id": 3}


@pytest.mark.parametrize(
    ("set_to", "is_on"), [(None, False), ("", False), ("none", False), ("otlp", True), ("console, OTLP", True)]
)
def test_it_is_off_unless_it_is_asked_for(set_to: str | None, is_on: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, state in (("OTEL_TRACES_EXPORTER", traces_are_on), ("OTEL_METRICS_EXPORTER", metrics_are_on)):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv("OTEL_SDK_DISABLED", raising=False)
        if set_to is not None:
            monkeypatch.setenv(name, set_to)
        assert state() == is_on
        monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
        assert not state()


def test_a_plan_is_found_by_the_end_of_its_batch(tmp_path: Path) -> None:
    notes = PlanNotes(tmp_path)
    notes.write({"another": "batch"}, Interval(1, 2))
    notes.write(END, Interval(3, 4))
    assert notes.find([LINE, "{}", "no JSON", "17"]) == [Interval(3, 4)]
    assert notes.find(['{"another": "batch"}']) == []
    assert len(list(tmp_path.iterdir())) == 1


def test_of_two_planners_with_one_end_the_last_one_counts(tmp_path: Path) -> None:
    notes = PlanNotes(tmp_path)
    notes.write(END, Interval(1, 2))
    (tmp_path / f"{os.getpid()}.json").rename(tmp_path / "1.json")
    notes.write(END, Interval(5, 6))
    (tmp_path / "2.json").write_text("damaged")
    assert notes.find([LINE]) == [Interval(5, 6)]


def test_notes_of_planners_that_are_gone_are_removed(tmp_path: Path) -> None:
    old = tmp_path / "1.json"
    old.write_text("{}")
    os.utime(old, (0, old.stat().st_mtime - 2 * KEPT_S))
    PlanNotes(tmp_path).write(END, Interval(1, 2))
    assert [path.name for path in tmp_path.iterdir()] == [f"{os.getpid()}.json"]

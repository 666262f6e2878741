"""A child answers until it ends; what it said before it was killed is not lost, and nothing it started is left."""

from __future__ import annotations

import os
import select
from pathlib import Path

import psutil
import pytest

from lab.child_process import ChildEndedError, ChildProcess

CODE = """
import json, subprocess, sys
from lab.child_process import event_writer
tell = event_writer()
print("chatter", json.loads(sys.argv[1]))
tell(ready=True)
for line in sys.stdin:
    started = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    tell(then="more")
    tell(said=json.loads(line), started=started.pid)
"""


@pytest.fixture
def child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ChildProcess:
    (tmp_path / "answering.py").write_text(CODE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    child = ChildProcess("answering", {"a": 1}, tmp_path / "child.log")
    assert child.receive() == {"ready": True}
    return child


def runs(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def test_it_answers_until_it_is_closed(child: ChildProcess) -> None:
    with child:
        assert child.receive(0) is None
        child.send(["x"])
        assert child.receive() == {"then": "more"}
        answer = child.receive()
        assert answer is not None
        assert answer["said"] == ["x"]
        assert child.is_alive
    assert not child.is_alive
    assert not runs(answer["started"])
    assert child.log_tail() == "chatter {'a': 1}\n"
    child.close()


def test_what_it_said_before_it_was_killed_is_received(child: ChildProcess) -> None:
    child.send("x")
    select.select([child._events], [], [])
    assert child.kill() == 2, "itself, and what it started before it answered"
    assert child.receive(0) == {"then": "more"}
    with pytest.raises(ChildEndedError):
        list(iter(lambda: child.receive(0), None))
    child.close()


def test_a_child_that_has_died_is_told_by_what_it_does_not_answer(child: ChildProcess) -> None:
    psutil.Process(child.pid).kill()
    psutil.Process(child.pid).wait()
    child.send("x")
    child.send("y")
    with pytest.raises(ChildEndedError):
        child.receive()
    child.close()


@pytest.mark.parametrize(
    ("code", "within_s"), [("raise SystemExit('wrong')", 60), ("import signal; signal.pause()", 0)]
)
def test_a_child_that_does_not_start_is_not_left_behind(
    code: str, within_s: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "silent.py").write_text(code)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    child = ChildProcess("silent", {}, tmp_path / "child.log")
    assert child.first_event(within_s) is None
    assert not child.is_alive
    assert not runs(child.pid)
    child.close()

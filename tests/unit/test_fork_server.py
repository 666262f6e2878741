"""What the fork server runs is what a new interpreter would run; or a new interpreter runs it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from sparkonce.connectors.runtime import fork_server, worker_python
from sparkonce.connectors.runtime.fork_client import INTERPRETER, SOCKET
from sparkonce.connectors.runtime.fork_server import AS_SPARK_STARTS_PYTHON, MODULE, fixed
from sparkonce.private_folder import private_folder
from tests.cases import each_case

PROJECT = Path(__file__).resolve().parents[2]
DEADLINE_S = 120
LOOK = """
import json, os, random, sys
found = {
    "argv": sys.argv[1:], "name": __name__, "orig": sys.orig_argv[1:], "path": sys.path, "folder": os.getcwd(),
    "environment": dict(os.environ), "hash": hash("x"), "input": sys.stdin.read(), "flags": list(sys.flags),
}
parents = os.getppid(), "sparkonce.connectors.kafka_source.planner" in sys.modules
print(json.dumps([found, parents, random.random()]))
print("to stderr", file=sys.stderr)
sys.exit(3)
"""
WAIT = "import os; print(os.getpid(), flush=True); os.read(0, 1)\n"

pytestmark = pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="the server counts threads in /proc")


@dataclass(frozen=True, slots=True)
class Started:
    """A server as a driver starts it."""

    process: subprocess.Popen[bytes]
    folder: Path
    environment: Mapping[str, str]
    """What Spark's processes get."""

    def popen(self, *arguments: str, **more: str) -> subprocess.Popen[str]:
        """Start a Python process as Spark does."""
        return subprocess.Popen(
            [str(worker_python.SCRIPT), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=PROJECT,
            env={**self.environment, **more},
        )

    def run(self, *arguments: str, **more: str) -> tuple[int, str, str]:
        """Start one, and wait for its end: its code, and what it wrote."""
        with self.popen(*arguments, **more) as process:
            out, errors = process.communicate("hello", timeout=DEADLINE_S)
        return process.returncode, out, errors


@contextmanager
def server(folder: Path, modules: Path) -> Iterator[Started]:
    """Start a server that ends with this context, and that finds ``modules``."""
    folder.mkdir()
    path = os.pathsep.join((str(modules), str(PROJECT)))
    variables = {"PYTHONPATH": path, "PYTHONHASHSEED": "0", "PYTHONUNBUFFERED": "YES"}
    environment = {**os.environ, **variables, SOCKET: str(folder / "socket")}
    environment |= {INTERPRETER: sys.executable, worker_python.HOME: "/no/spark"}
    process = subprocess.Popen(
        [sys.executable, "-m", MODULE, str(folder / "socket")],
        env={**environment, **AS_SPARK_STARTS_PYTHON},
        cwd=PROJECT,
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        while process.poll() is None and not (folder / "socket").exists():
            time.sleep(0.01)
        yield Started(process, folder, environment)
    finally:
        process.communicate(timeout=DEADLINE_S)


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("modules")
    (folder / "looks_around.py").write_text(LOOK)
    (folder / "waits.py").write_text(WAIT)
    return folder


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory, modules: Path) -> Iterator[Started]:
    with server(tmp_path_factory.mktemp("server") / "s", modules) as running:
        yield running


def test_a_forked_process_finds_what_a_new_one_finds(started: Started) -> None:
    arguments = ("-m", "looks_around", "a b", "*")
    code, out, errors = started.run(*arguments, PYTHON_WORKER_FACTORY_SECRET="s")
    found, (parent, preloaded), number = json.loads(out)
    assert (parent, preloaded) == (started.process.pid, True), errors
    assert (code, errors) == (3, "to stderr\n")
    plain_code, plain_out, _ = started.run(*arguments, PYTHON_WORKER_FACTORY_SECRET="s", **{SOCKET: ""})
    plain, (_, plain_preloaded), _ = json.loads(plain_out)
    assert (plain_code, plain_preloaded) == (3, False)
    assert found.pop("environment") == {**plain.pop("environment"), SOCKET: started.environment[SOCKET]}
    assert found == plain
    assert found["input"] == "hello"
    assert json.loads(started.run(*arguments)[1])[2] != number, "random numbers are alike"


@each_case(
    ("arguments", "changed"),
    [
        (("-m", "looks_around"), {"PYTHONHASHSEED": "1"}),
        (("-m", "looks_around"), {"PYTHONPATH": "{modules}"}),
        (("-m", "looks_around"), {"OMP_NUM_THREADS": "2"}),
        (("-m", "looks_around"), {"LD_PRELOAD": ""}),
        (("-m", "looks_around"), {"SPARKONCE_SET_LATER": "1"}),
        (("-m", "looks_around"), {"LC_ALL": "C.UTF-8", "LANG": "C.UTF-8"}),
        (("{modules}/looks_around.py",), {}),
    ],
)
def test_what_would_differ_runs_in_an_interpreter_of_its_own(
    started: Started, modules: Path, arguments: tuple[str, ...], changed: dict[str, str]
) -> None:
    variables = {name: text.format(modules=modules) for name, text in changed.items()}
    code, out, errors = started.run(*(each.format(modules=modules) for each in arguments), **variables)
    found, (parent, preloaded), _ = json.loads(out)
    assert (code, parent, preloaded) == (3, os.getpid(), False), errors
    assert variables.items() <= found["environment"].items()


def test_another_folder_runs_in_an_interpreter_of_its_own(started: Started, tmp_path: Path) -> None:
    command = [str(worker_python.SCRIPT), "-m", "looks_around"]
    done = subprocess.run(
        command, env=started.environment, cwd=tmp_path, input="", capture_output=True, text=True, check=False
    )
    found, (parent, _), _ = json.loads(done.stdout)
    assert (parent, found["folder"]) == (os.getpid(), str(tmp_path))


def test_a_client_that_is_killed_takes_its_process_along(started: Started) -> None:
    with started.popen("-m", "waits") as client:
        assert client.stdout is not None
        process = psutil.Process(int(client.stdout.readline()))
        assert process.ppid() == started.process.pid
        assert process.cmdline()[0] == f"{sys.executable} -m waits"
        client.kill()
        process.wait(DEADLINE_S)


def test_a_client_ends_as_its_process_ends(started: Started) -> None:
    with started.popen("-m", "waits") as client:
        assert client.stdout is not None
        os.kill(int(client.stdout.readline()), signal.SIGKILL)
        assert client.wait(DEADLINE_S) == 128 + signal.SIGKILL


def test_after_the_driver_what_runs_goes_on_and_nothing_is_left(tmp_path: Path, modules: Path) -> None:
    with server(tmp_path / "s", modules) as started, started.popen("-m", "waits") as client:
        assert client.stdout is not None
        process = int(client.stdout.readline())
        assert started.process.stdin is not None
        started.process.stdin.close()
        started.process.stdin = None
        code, out, _ = started.run("-m", "looks_around")
        assert (code, json.loads(out)[1]) == (3, [os.getpid(), False])
        assert psutil.Process(process).ppid() == started.process.pid
        client.communicate("x", timeout=DEADLINE_S)
        assert client.returncode == 0
        assert started.process.wait(DEADLINE_S) == 0
        assert list(started.folder.iterdir()) == []


def test_a_server_that_is_killed_leaves_processes_to_new_interpreters(tmp_path: Path, modules: Path) -> None:
    with server(tmp_path / "s", modules) as started:
        started.process.kill()
        started.process.wait(DEADLINE_S)
        code, out, _ = started.run("-m", "looks_around")
        assert (code, json.loads(out)[1]) == (3, [os.getpid(), False])


def test_nothing_is_forked_beside_a_thread(tmp_path: Path) -> None:
    (tmp_path / "crc32c.py").write_text(
        "import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()\ncrc32c = None\n"
    )
    (tmp_path / "looks_around.py").write_text(LOOK)
    with server(tmp_path / "s", tmp_path) as started:
        code, out, _ = started.run("-m", "looks_around")
        assert (code, json.loads(out)[1]) == (3, [os.getpid(), False])
        assert started.process.stderr is not None
        assert b"there are 2 threads after the imports" in started.process.stderr.read()


def test_variables_that_count_when_python_starts() -> None:
    given = {
        "PYTHONPATH": "a::b:a",
        "PYTHON_GIL": "1",
        "PYTHON_WORKER_FACTORY_SECRET": "s",
        "PYTHON_UDF_BATCH_SIZE": "100",
        "TZ": "UTC",
        "TZS": "x",
        "HOME": "/root",
        "NUMBA_CACHE_DIR": "/n",
    }
    assert fixed(given) == {"PYTHONPATH": "a:b", "PYTHON_GIL": "1", "TZ": "UTC", "NUMBA_CACHE_DIR": "/n"}


def test_sockets_of_servers_that_were_killed_are_removed(
    tmp_path: Path, modules: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    folder = private_folder("sparkonce-fork")
    assert folder is not None
    (folder / "1-alive.socket").symlink_to(tmp_path / "s" / "socket")
    (folder / "notes.txt").write_text("of somebody else")
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(str(folder / "2-killed.socket"))
    with server(tmp_path / "s", modules) as started:
        fork_server._sweep(folder)
        assert sorted(each.name for each in folder.iterdir()) == ["1-alive.socket", "notes.txt"]
        assert started.run("-m", "looks_around")[0] == 3

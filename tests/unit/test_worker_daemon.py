"""The daemon of Python workers forks only while it is alone in its process, and else gives way to PySpark's."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sparkonce.connectors.runtime.worker_daemon import MODULE, plain_command

PROJECT = Path(__file__).resolve().parents[2]
DEADLINE_S = 120
SECRET = b"secret"

pytestmark = pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="counts threads in /proc")


@contextmanager
def daemon(errors: Path, first_on_path: Path | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """Start the daemon as Spark does; it ends when its input ends."""
    path = os.pathsep.join(str(folder) for folder in (first_on_path, PROJECT) if folder)
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "SPARK_REUSE_WORKER": "1"}
    environment["PYTHON_WORKER_FACTORY_SECRET"] = SECRET.decode()
    with errors.open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", MODULE, "pyspark.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env=environment,
            cwd=PROJECT,
        )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield process
    finally:
        process.stdin.close()
        process.wait(DEADLINE_S)
        process.stdout.close()


def port_of(process: subprocess.Popen[bytes], errors: Path) -> int:
    """Wait until the daemon serves."""
    assert process.stdout is not None
    answer = process.stdout.read(4)
    assert len(answer) == 4, errors.read_text()
    return int(struct.unpack(">i", answer)[0])


def command_of(process_id: int) -> list[str]:
    return Path(f"/proc/{process_id}/cmdline").read_text().split("\0")


def test_it_is_alone_in_its_process_when_it_forks_and_its_workers_answer(tmp_path: Path) -> None:
    errors = tmp_path / "errors"
    with daemon(errors) as process:
        port = port_of(process, errors)
        assert MODULE in command_of(process.pid), errors.read_text()
        assert len(os.listdir(f"/proc/{process.pid}/task")) == 1
        with socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S) as worker:
            answers = worker.makefile("rb")
            worker_pid = struct.unpack(">i", answers.read(4))[0]
            assert f"\nPPid:\t{process.pid}\n" in Path(f"/proc/{worker_pid}/status").read_text()
            worker.sendall(struct.pack(">i", len(SECRET)) + SECRET)
            assert answers.read(6) == struct.pack(">i", 2) + b"ok"
            answers.close()


@pytest.mark.parametrize(
    ("file", "code", "reason"),
    [
        (
            "crc32c.py",
            "import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()\ncrc32c = None\n",
            "there are 2 threads after the imports",
        ),
        ("crc32c.py", "raise OSError('no such file')\n", "(OSError: no such file)"),
    ],
)
def test_it_gives_way_to_pysparks_daemon(tmp_path: Path, file: str, code: str, reason: str) -> None:
    errors = tmp_path / "errors"
    (tmp_path / file).write_text(code)
    with daemon(errors, first_on_path=tmp_path) as process:
        assert port_of(process, errors) > 0
        assert command_of(process.pid)[1:4] == ["-m", "pyspark.daemon", "pyspark.worker"]
    assert reason in errors.read_text()
    assert "continuing as pyspark.daemon" in errors.read_text()


def test_only_the_name_of_the_daemon_changes() -> None:
    command = ["python", "-u", "-m", MODULE, "pyspark.worker"]
    assert plain_command(command) == ["python", "-u", "-m", "pyspark.daemon", "pyspark.worker"]


def test_forked_workers_draw_random_numbers_of_their_own_and_collect_little_garbage() -> None:
    code = """
import gc, os
from sparkonce.connectors.runtime.worker_daemon import preload, prepare_to_fork
assert preload(["numpy"]) is None
prepare_to_fork()
import numpy as np
for _ in range(2):
    if os.fork() == 0:
        print(np.random.random(), gc.get_freeze_count() > 10_000, flush=True)
        os._exit(0)
    os.wait()
"""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=PROJECT, env=environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    first, second = (line.split() for line in ran.stdout.splitlines())
    assert first[0] != second[0]
    assert first[1] == second[1] == "True"

"""What a broker loads less of works: the stand-in for crc32c becomes the package when it is asked for more."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

CODE = """
import sys
from sparkonce.kafka.protocol.light_start import keep_crc32c_light
keep_crc32c_light()
keep_crc32c_light()
from crc32c import crc32c
assert crc32c(b"123456789") == 0xE3069283
assert "importlib.metadata" not in sys.modules
import crc32c
assert isinstance(crc32c.__version__, str)
assert "importlib.metadata" in sys.modules
assert crc32c.crc32c(b"123456789") == 0xE3069283
"""


ASYNCIO = """
import sys
from sparkonce.kafka.protocol.light_start import keep_asyncio_light
keep_asyncio_light()
keep_asyncio_light()
import asyncio
from sparkonce.broker_lite.server import server
assert "ssl" not in sys.modules and "_ssl" not in sys.modules
import ssl
from sparkonce.broker_lite.server.tls import TlsConnection
assert asyncio.run(asyncio.sleep(0, "ran")) == "ran"
"""

START = """
import asyncio, sys
from sparkonce.broker_lite import __main__ as broker
from sparkonce.jobs.cli import main as command
asyncio.run = lambda serving: serving.close()
data = sys.argv[2:]
assert (command.main(["broker", *data]) if sys.argv[1] == "command" else broker.main(data)) == 0
from sparkonce.broker_lite.server import server, standalone_mode
needless = {"importlib.metadata", "email", "difflib", "tempfile"} | ({"shutil"} if sys.argv[1] == "module" else set())
assert not needless & sys.modules.keys(), needless & sys.modules.keys()
"""


def test_crc32c_without_its_package() -> None:
    run_alone(CODE)


def test_asyncio_without_tls_and_tls_after_that() -> None:
    run_alone(ASYNCIO)


def test_a_start_loads_nothing_that_it_does_not_need() -> None:
    for how in ("module", "command"):
        run_alone(START, how, "--data-dir", "/nowhere")


def run_alone(code: str, *arguments: str) -> None:
    project = str(Path(__file__).resolve().parents[2])
    # Without site packages' own start-up code, which may import anything.
    paths = os.pathsep.join([project, *[path for path in sys.path if path.endswith("site-packages")]])
    command = [sys.executable, "-S", "-c", code, *arguments]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": paths})

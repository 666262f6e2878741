"""The stand-in for crc32c computes what the package does, and becomes it when it is asked for more."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

CODE = """
import sys
from sparkonce.broker_lite.protocol.light_start import keep_crc32c_light
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


def test_crc32c_without_its_package() -> None:
    project = str(Path(__file__).resolve().parents[2])
    # Without site packages' own start-up code, which may import anything.
    paths = os.pathsep.join([project, *[path for path in sys.path if path.endswith("site-packages")]])
    subprocess.run([sys.executable, "-S", "-c", CODE], check=True, env={**os.environ, "PYTHONPATH": paths})

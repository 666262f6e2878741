"""A wheel of this checkout."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
LEFT_OUT = shutil.ignore_patterns(".*", "tests", "docs", "build", "*.egg-info", "__pycache__")


def build_wheel(folder: Path) -> Path:
    """Build a wheel from a copy of the sources: a build leaves files beside them, and packs what it finds there."""
    source = shutil.copytree(PROJECT, folder / "source", ignore=LEFT_OUT, symlinks=True)
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(folder)]
    subprocess.run([*command, str(source)], check=True, timeout=240)
    shutil.rmtree(source)
    (wheel,) = folder.glob("*.whl")
    return wheel

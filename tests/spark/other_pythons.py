"""Python environments that are not the driver's, and a cluster whose machines differ in what is at one path."""

from __future__ import annotations

import sys
import sysconfig
import venv
from collections.abc import Mapping
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
OLDER = "0.0.9"


def empty(folder: Path) -> Path:
    """Return the Python of an environment without any package."""
    venv.create(folder, with_pip=False, symlinks=True)
    return folder / "bin" / Path(sys.executable).name


def without_sparkonce(folder: Path) -> Path:
    """Return the Python of an environment with all of this one's packages but sparkonce."""
    return _borrowing(folder, "")


def with_older_sparkonce(folder: Path) -> Path:
    """Return the Python of an environment with all of this one's packages, whose sparkonce says that it is older."""
    python = _borrowing(folder, f"{PROJECT}\n")
    (packages,) = folder.glob("lib/python*/site-packages")
    metadata = packages / f"sparkonce-{OLDER}.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text(f"Metadata-Version: 2.1\nName: sparkonce\nVersion: {OLDER}\n")
    return python


def _borrowing(folder: Path, more: str) -> Path:
    """Make an environment that finds this one's packages, but not this checkout, which has a ``.pth`` of its own."""
    python = empty(folder)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "borrowed.pth").write_text(f"{sysconfig.get_path('purelib')}\n{more}")
    return python


def one_core_each(folder: Path) -> dict[str, str]:
    """Return variables by which sessions take one executor of one core on each of two workers."""
    folder.mkdir()
    settings = ("spark.cores.max 2", "spark.executor.cores 1", "spark.executor.memory 600m")
    (folder / "spark-defaults.conf").write_text("\n".join(settings))
    return {"SPARK_CONF_DIR": str(folder), "SPARK_LOCAL_IP": "127.0.0.1"}


def by_machine(script: Path, pythons: Mapping[str, Path | str]) -> Path:
    """Write a program that becomes another Python in the folders of each worker, and this one elsewhere.

    The keys are names of workers' folders, as `StandaloneCluster` makes them.
    """
    cases = "".join(f'  */{folder}/*) exec "{python}" "$@" ;;\n' for folder, python in pythons.items())
    script.write_text(f'#!/bin/sh\ncase "$PWD" in\n{cases}  *) exec "{sys.executable}" "$@" ;;\nesac\n')
    script.chmod(0o755)
    return script

"""Where the configurations of the jobs are."""

from __future__ import annotations

from pathlib import Path

_INSTALLED = Path(__file__).with_name("conf")
CONF = _INSTALLED if _INSTALLED.is_dir() else Path(__file__).resolve().parents[1] / "conf"
"""The folder `conf`: an installation has it beside this file (setup.py), a checkout at its top."""

"""Where the configurations of the jobs are."""

from __future__ import annotations

from pathlib import Path

CONF = Path(__file__).parents[1] / "conf"
"""The folder `conf` at the top of a checkout, which is linked here and installed here."""

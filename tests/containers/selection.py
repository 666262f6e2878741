"""A pytest plugin that leaves out tests which would be the same whatever ``KAFKA`` says; the pages' tests all stay.

The runner names it on pytest's command line (``-p tests.containers.selection``). It imports nothing of ours.
"""

from __future__ import annotations

from pathlib import Path

import pytest

PAGES = Path(__file__).resolve().parents[1] / "ui"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep what takes its broker from the fixture `kafka`, and what looks at pages."""
    chosen = [each for each in items if "kafka" in getattr(each, "fixturenames", ()) or PAGES in each.path.parents]
    config.hook.pytest_deselected(items=[each for each in items if each not in chosen])
    items[:] = chosen

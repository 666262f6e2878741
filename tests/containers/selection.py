"""A pytest plugin that leaves out tests which would be the same whatever ``KAFKA`` says.

The runner names it on pytest's command line (``-p tests.containers.selection``). It imports nothing but pytest.
"""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep what takes its broker from the fixture `kafka`."""
    chosen = [each for each in items if "kafka" in getattr(each, "fixturenames", ())]
    config.hook.pytest_deselected(items=[each for each in items if each not in chosen])
    items[:] = chosen

"""Change a module of the product as soon as a process imports it, and not before: most processes import little.

Each folder beside this file holds a `sitecustomize.py`, which Python runs when it starts. Put on ``PYTHONPATH``, it is
in every Python process of a pipeline: the driver, Spark's daemons, the workers.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType


class _Planting(MetaPathFinder):
    def __init__(self, name: str, change: Callable[[ModuleType], None]) -> None:
        self._name = name
        self._change = change

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path) if fullname == self._name else None
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def execute_and_change(module: ModuleType) -> None:
            execute(module)
            self._change(module)

        spec.loader.exec_module = execute_and_change  # type: ignore[method-assign]
        return spec


def plant(module: str, change: Callable[[ModuleType], None]) -> None:
    """Have ``change`` called with ``module`` right after it was imported."""
    assert module not in sys.modules, f"{module} is imported already"
    sys.meta_path.insert(0, _Planting(module, change))

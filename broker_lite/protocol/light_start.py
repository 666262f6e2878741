"""Use kafka-python's codecs without importing its clients, to start faster.

Any import below `kafka` runs `kafka/__init__`, which imports consumer, producer and admin client: about 100 ms, the
most of a broker's start. `keep_kafka_light` puts a stand-in for the package in its place whose submodules import as
usual; whoever then asks the package itself for something has the real `__init__` run at that moment. Two threads that
do so at once could see it half done, so this is for a process that is the broker's alone, before it starts a thread.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import Any


class _LightPackage(ModuleType):
    """The package `kafka` before its `__init__` has run."""

    def __getattr__(self, name: str) -> Any:
        spec = self.__spec__
        asked_by_import_system = name.startswith("__") and name not in ("__all__", "__version__")
        if asked_by_import_system or spec is None or spec.loader is None:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        self.__class__ = ModuleType  # type: ignore[assignment]
        spec.loader.exec_module(self)
        return getattr(self, name)


def keep_kafka_light() -> None:
    """Put the stand-in in place, unless `kafka` is imported already.

    Raises:
        ModuleNotFoundError: if kafka-python is not installed.
    """
    if "kafka" in sys.modules:
        return
    spec = find_spec("kafka")
    if spec is None:
        raise ModuleNotFoundError("kafka-python is not installed", name="kafka")
    package = module_from_spec(spec)
    package.__class__ = _LightPackage
    sys.modules["kafka"] = package

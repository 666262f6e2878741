"""Import only the modules that a broker needs, to start faster.

These are kafka-python's codecs without its clients, CRC-32C without its command line, and asyncio without TLS.

Any import below `kafka` runs `kafka/__init__`, which imports consumer, producer and admin client: about 100 ms, most of
a broker's start. `keep_kafka_light` replaces the package by a stand-in whose submodules import as usual; the
first access to the package itself runs the real `__init__`. Two threads that do so at once could see it half done, so
this is for a process that only runs the broker, before it starts a thread.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import Any


class _LightPackage(ModuleType):
    """A package before its `__init__` has run."""

    def __getattr__(self, name: str) -> Any:
        spec = self.__spec__
        asked_by_import_system = name.startswith("__") and name not in ("__all__", "__version__")
        if asked_by_import_system or spec is None or spec.loader is None:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        self.__class__ = ModuleType  # type: ignore[assignment]
        spec.loader.exec_module(self)
        return getattr(self, name)


def keep_kafka_light() -> None:
    """Put the stand-in in place, unless `kafka` is imported. Raises ModuleNotFoundError without kafka-python."""
    _stand_in("kafka", "kafka-python")


def keep_crc32c_light() -> None:
    """Replace the package `crc32c` by a stand-in, unless it is already imported: only its extension is needed.

    Its `__init__` looks up its own version among all installed packages, which takes longer than the rest of it.

    Raises:
        ModuleNotFoundError: if crc32c is not installed.
    """
    package = _stand_in("crc32c", "crc32c")
    if package is not None:
        package.__dict__["crc32c"] = import_module("crc32c._crc32c").crc32c


def keep_asyncio_light() -> None:
    """Import asyncio without its TLS, unless it is already imported: OpenSSL takes a tenth of a start.

    asyncio supports a Python without `ssl`. A broker's TLS is not asyncio's: `server/tls.py` imports `ssl` itself.
    """
    if "asyncio" in sys.modules or "ssl" in sys.modules:
        return
    sys.modules["ssl"] = None  # type: ignore[assignment]  # importing it fails
    try:
        import_module("asyncio")
    finally:
        del sys.modules["ssl"]


def _stand_in(name: str, distribution: str) -> ModuleType | None:
    if name in sys.modules:
        return None
    spec = find_spec(name)
    if spec is None:
        raise ModuleNotFoundError(f"{distribution} is not installed", name=name)
    package = module_from_spec(spec)
    package.__class__ = _LightPackage
    sys.modules[name] = package
    return package

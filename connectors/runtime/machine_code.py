"""Caches the machine code of compiled functions: numba's cache, without the cases where it returns outdated code.

Numba compares time or contents of the function's own file. The functions that are inlined into it, the constants and
the order of a tuple's fields may come from other files. And its index is written before the code that it names, under
a name that an older version or another signature may have used. So after an upgrade, a kill, a full disk or a race of
two processes it may return old code, silently. It also fails for good on a file that is damaged, or that mentions a
type that has moved.

Here a file's name contains all that its contents depend on, and a checksum precedes them. That replaces numba's
index; its choice of a folder, its key and its serialization are used. Excluded are folders below the home directory if
there is none: numba would create ``~`` in the current directory, which may belong to anybody.
"""

from __future__ import annotations

import hashlib
import logging
import os
import pickle
import re
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import CodeType
from typing import Any

import numba
from numba.core.caching import CompileResultCacheImpl, FunctionCache
from numba.core.dispatcher import Dispatcher
from numba.core.serialize import dumps
from numba.core.types.containers import BaseTuple
from numba.extending import _Intrinsic
from numba.misc.appdirs import AppDirs

_log = logging.getLogger(__name__)

CHECKSUM_BYTES = 32
BELOW_HOME = ("UserWideCacheLocator", "ZipCacheLocator")
"""Numba's locators of folders below the home directory; older versions put an underscore before."""


class _Places(CompileResultCacheImpl):  # type: ignore[misc]
    """Numba's choice of a folder, without those below the home directory if there is none."""

    _locator_classes = tuple(
        kind
        for kind in CompileResultCacheImpl._locator_classes
        if os.path.isabs(AppDirs(appname="numba", appauthor=False).user_cache_dir)
        or kind.__name__.lstrip("_") not in BELOW_HOME
    )


class MachineCode(FunctionCache):  # type: ignore[misc]
    """The cache of one function, instead of numba's.

    Raises:
        RuntimeError: if there is no folder to keep it in.
    """

    _impl_class = _Places

    def __init__(self, function: Callable[..., Any], options: object) -> None:
        super().__init__(function)
        self._cache_file = _Entries(Path(self.cache_path), self._impl.filename_base, function, options)

    def load_overload(self, signature: Any, target: Any) -> Any:
        """See numba; None if nothing can be loaded."""
        try:
            return super().load_overload(signature, target)
        except Exception as error:  # a pickle may raise anything
            _log.info("compiling %s again: its cache cannot be read: %s", self, error)
            return None

    def save_overload(self, signature: Any, data: Any) -> None:
        """See numba; no effect if nothing can be written."""
        try:
            super().save_overload(signature, data)
        except OSError as error:
            _log.info("%s is not cached: %s", self, error)


class _Entries:
    """The files of one function, one for each signature."""

    def __init__(self, folder: Path, base: str, function: Callable[..., Any], options: object) -> None:
        self._folder, self._base, self._function, self._options = folder, base, function, options

    def load(self, key: tuple[Any, ...]) -> Any:
        """See numba; None if there is no such file."""
        try:
            found = self._path(key).read_bytes()
        except FileNotFoundError:
            return None
        checksum, data = found[:CHECKSUM_BYTES], found[CHECKSUM_BYTES:]
        if hashlib.sha256(data).digest() != checksum:
            raise ValueError("its checksum is wrong")  # damaged machine code would crash the process, each time
        return pickle.loads(data)  # noqa: S301  # as numba does; the folder is this user's

    def save(self, key: tuple[Any, ...], data: object) -> None:
        """See numba; the file exists complete, or not at all."""
        path, pickled = self._path(key), dumps(data)
        written = path.with_name(f"{path.name}.tmp.{uuid.uuid4().hex}")
        try:
            written.write_bytes(hashlib.sha256(pickled).digest() + pickled)
            written.replace(path)
        finally:
            written.unlink(missing_ok=True)

    def flush(self) -> None:
        """See numba."""
        for path in self._folder.glob(f"{self._base}-*.nbc"):
            path.unlink(missing_ok=True)

    def _path(self, key: tuple[Any, ...]) -> Path:
        # Not before the first call: what the function calls may be defined below it.
        signature = key[0]
        parts = [repr((numba.__version__, self._options, key)), *_fields(signature), *_sources(self._function, set())]
        name = hashlib.sha256("\n".join(parts).encode()).hexdigest()
        return self._folder / f"{self._base}-{name[:32]}.nbc"


def _fields(kinds: Iterable[Any]) -> Iterator[str]:
    """Return the field order of all tuples in a signature, which numba's type names do not include."""
    for kind in kinds:
        if isinstance(kind, BaseTuple):
            yield f"{kind}: {getattr(kind, 'fields', ())}"
            yield from _fields(kind.types)


def _sources(function: Callable[..., Any], seen: set[Any]) -> Iterator[str]:
    """Return a function's bytecode, and that of all compiled functions, the constants and the fields that it uses.

    Constant arrays, and names after a dot, are not found: compiled functions must not use them.
    """
    if function in seen:
        return
    seen.add(function)
    yield f"{function.__defaults__!r} {function.__kwdefaults__!r}"
    names = [name for text in function.__annotations__.values() for name in re.findall(r"\w+", str(text))]
    for code in _codes(function.__code__):
        constants = [each for each in code.co_consts if not isinstance(each, CodeType)]
        yield f"{code.co_name} {code.co_varnames} {code.co_names} {constants!r} {code.co_code.hex()}"
        names += code.co_names
    for name in dict.fromkeys(names):
        used = function.__globals__.get(name)
        if isinstance(used, Dispatcher | _Intrinsic):
            yield from _sources(used.py_func if isinstance(used, Dispatcher) else used._defn, seen)
        elif isinstance(used, type) and hasattr(used, "_fields"):
            yield f"{name}: {used._fields}"
        elif isinstance(used, int | float | str | bytes | tuple):
            yield f"{name} = {used!r}"


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _codes(each)

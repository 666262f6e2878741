"""Caches the machine code of compiled functions: numba's cache, without the cases where it returns outdated code.

Numba compares time or contents of the function's own file. The functions that are inlined into it, the constants and
the order of a tuple's fields may come from other files. And its index is written before the code that it names, under
a name that an older version or another signature may have used. So after an upgrade, a kill, a full disk or a race of
two processes it may return old code, silently. It also fails for good on a file that is damaged, or that mentions a
type that has moved.

Here a file's name says all that its contents depend on, and a checksum precedes them. That replaces numba's index and
its folders; its serialization is used. So one folder serves all installations of a user, of any version: it is among
the user's caches, or, where that cannot be written to, below the folder for temporary files. It belongs to this user
alone, because what it holds is executed. Where neither can be had, each process compiles.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import os
import pickle
import re
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

import llvmlite
import numba
import numpy as np
from llvmlite import ir
from numba.core.caching import NullCache
from numba.core.compiler import CompileResult
from numba.core.dispatcher import Dispatcher
from numba.core.serialize import dumps
from numba.core.types.containers import BaseTuple
from numba.extending import _Intrinsic

from sparkonce.private_folder import cache_folder, private_folder

_log = logging.getLogger(__name__)

CHECKSUM_BYTES = 32
MAX_CACHE_BYTES = 128 << 20
"""What is kept: code for ten or more versions of the package. Past it, the files that were used longest ago go."""
_SUFFIX = ".nbc"
_VERSIONS = (numba.__version__, llvmlite.__version__, np.__version__, sys.implementation.cache_tag, sys.abiflags)
_MODULES = ("llvmlite", "math", "numba", "numpy")
"""Whose contents their versions tell."""


class MachineCode(NullCache):  # type: ignore[misc]
    """The cache of one function, in the place of numba's."""

    def __init__(self, function: Callable[..., Any], options: object) -> None:
        self._py_func, self._options = function, options

    @property
    def cache_path(self) -> str | None:
        """See numba; where it is written to."""
        return str(code_folders()[-1]) if code_folders() else None

    def load_overload(self, signature: Any, target: Any) -> Any:
        """See numba; None if there is nothing that can be loaded."""
        target.refresh()
        found = None
        try:
            data = self._read(self._file_name(signature, target.codegen()))
            found = None if data is None else CompileResult._rebuild(target, *data)
        except Exception as error:  # a pickle may raise anything
            _log.info("compiling %s again: its cache cannot be read: %s", self._py_func.__qualname__, error)
        if found is None:
            _say_that_it_compiles()
        return found

    def save_overload(self, signature: Any, data: Any) -> None:
        """See numba; without an effect if nothing can be written."""
        if data.library.has_dynamic_globals:  # addresses of this process
            return
        try:
            self._write(self._file_name(signature, data.codegen), data._reduce())
        except (OSError, TypeError) as error:
            _log.info("%s is not cached: %s", self._py_func.__qualname__, error)

    def _file_name(self, signature: Any, codegen: Any) -> str:
        """Return the name of a file, which says all that its contents depend on.

        Raises:
            TypeError: if the function uses what cannot be compared.
        """
        # Not before the first call: what the function calls may be defined below it.
        function = self._py_func
        whole = _VERSIONS, codegen.magic_tuple(), self._options, function.__module__, function.__qualname__, signature
        parts = [repr(whole), *_fields(signature), *_sources(function, set())]
        digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()
        return f"{function.__module__}.{function.__qualname__}-{digest[:32]}{_SUFFIX}"

    def _read(self, name: str) -> Any:
        path = next((folder / name for folder in code_folders() if (folder / name).exists()), None)
        if path is None:
            return None
        found = own_bytes(path)
        checksum, data = found[:CHECKSUM_BYTES], found[CHECKSUM_BYTES:]
        if hashlib.sha256(data).digest() != checksum:
            raise ValueError("its checksum is wrong")  # damaged machine code would end the process, each time
        with suppress(OSError):
            os.utime(path)  # so it is kept longer than what is not used any more
        return pickle.loads(data)  # noqa: S301  # as numba does; the folder is this user's

    def _write(self, name: str, data: object) -> None:
        """Write a file, whole or not at all."""
        if not code_folders():
            return
        folder, pickled = code_folders()[-1], dumps(data)
        written = folder / f"{name}.tmp.{uuid.uuid4().hex}"
        try:
            written.write_bytes(hashlib.sha256(pickled).digest() + pickled)
            written.replace(folder / name)
        finally:
            written.unlink(missing_ok=True)
        _sweep_once(folder)


def own_bytes(path: Path) -> bytes:
    """Read a file of this user's own; where others may write to a folder above, one of theirs may be in its place.

    Raises:
        PermissionError: if it is somebody else's.
    """
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
        if os.fstat(file.fileno()).st_uid != os.getuid():
            raise PermissionError("it belongs to somebody else")
        return file.read()


@functools.cache
def code_folders() -> tuple[Path, ...]:
    """Return where machine code is looked for; it is written to the last one. Without any, each process compiles."""
    ours = cache_folder("machine-code")
    if ours is not None and os.access(ours, os.W_OK):
        return (ours,)
    return tuple(folder for folder in (ours, private_folder("sparkonce-machine-code")) if folder is not None)


@functools.cache
def _say_that_it_compiles() -> None:
    """Say it once in a process, and so that it is seen: nothing else happens meanwhile, for up to a minute."""
    _log.warning(
        "sparkonce compiles its decoders for this machine, once: some seconds, or up to a minute if it is busy. "
        "`sparkonce warm` does it beforehand"
    )


@functools.cache
def _sweep_once(folder: Path) -> None:
    """Remove what was used longest ago, as far as there is more than is kept; another process may do so, too."""
    left = MAX_CACHE_BYTES
    found = [(path, state) for path in folder.glob(f"*{_SUFFIX}*") if (state := _state(path)) is not None]
    for path, state in sorted(found, key=lambda each: each[1].st_mtime, reverse=True):
        left -= state.st_size
        if left < 0:
            with suppress(OSError):
                path.unlink()


def _state(path: Path) -> os.stat_result | None:
    try:
        return path.lstat()
    except OSError:
        return None


def _fields(kinds: Iterable[Any]) -> Iterator[str]:
    """Return which classes the tuples of a signature are, and the order of their fields: no name of a type has them."""
    for kind in kinds:
        if isinstance(kind, BaseTuple):
            made_by = getattr(kind, "instance_class", tuple)
            yield f"{kind}: {made_by.__module__}.{made_by.__qualname__} {getattr(kind, 'fields', ())}"
            yield from _fields(kind.types)


def _sources(function: Callable[..., Any], seen: set[Any]) -> Iterator[str]:
    """Return a function's bytecode, and that of all functions, the constants and the fields that it uses.

    Raises:
        TypeError: if it uses anything else of ours, such as an array, or a name of a module behind a dot.
    """
    if function in seen:
        return
    seen.add(function)
    if function.__closure__:
        raise TypeError(f"{function.__qualname__} uses variables of the function that it is in")
    yield f"{function.__defaults__!r} {function.__kwdefaults__!r}"
    for name in re.findall(r"\w+", " ".join(map(str, function.__annotations__.values()))):
        yield from _tuple_class(name, function.__globals__.get(name))
    for code in _codes(function.__code__):
        constants = [each for each in code.co_consts if not isinstance(each, CodeType)]
        yield f"{code.co_name} {code.co_varnames} {code.co_names} {constants!r} {code.co_code.hex()}"
        for name in code.co_names:
            yield from _source(name, function.__globals__.get(name), seen)


def _tuple_class(name: str, used: Any) -> Iterator[str]:
    if isinstance(used, type) and hasattr(used, "_fields"):
        yield f"{name}: {used._fields}"


def _source(name: str, used: Any, seen: set[Any]) -> Iterator[str]:
    """Return what a global name stands for; nothing for what belongs to Python or numba."""
    if isinstance(used, Dispatcher | _Intrinsic):
        yield from _sources(used.py_func if isinstance(used, Dispatcher) else used._defn, seen)
    elif isinstance(used, FunctionType):
        yield from _sources(used, seen)
    elif isinstance(used, type):
        yield from _tuple_class(name, used)
    elif isinstance(used, int | float | str | bytes | tuple | ir.Type):
        yield f"{name} = {used!r}"
    elif isinstance(used, ModuleType):
        if used.__name__.partition(".")[0] not in _MODULES:
            raise TypeError(f"it uses a name of the module {used.__name__}, behind a dot: import that name")
    elif not isinstance(used, BuiltinFunctionType | None):
        raise TypeError(f"it uses {name}, which is of {type(used)}")


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _codes(each)

"""Compile a function with numba, with a cache of machine code that works wherever the package is installed.

Numba keeps compiled code beside the source, or else below the home directory. In a container where neither can be
written it refuses to cache at all, and every Python worker would compile for a second. A private folder below the
temporary directory is the last resort; it must belong to this user alone, because what it holds is executed.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType
from typing import Any, TypeVar

import numba
import numpy as np
from numba.core import cgutils, types
from numba.core.caching import FunctionCache
from numba.core.dispatcher import Dispatcher
from numba.extending import _Intrinsic, intrinsic
from numpy.typing import NDArray

_log = logging.getLogger(__name__)

Bytes = NDArray[np.uint8]
Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """Compile on first use, from the cache if it holds this function; the result releases the GIL."""
    try:
        return _compile(function, cache=True)
    except RuntimeError:  # numba: "cannot cache function: no locator available"
        folder = _private_folder()
        if folder is None:
            return _compile(function, cache=False)
        numba.config.CACHE_DIR = str(folder)
        return _compile(function, cache=True)


_OPTIONS = {"nogil": True, "boundscheck": False, "forceinline": True, "_nrt": False}
"""Inlined and without reference counts the decoder is seven times as quick: otherwise every call copies its arrays'
descriptors and counts references atomically. Nothing here allocates, so there is nothing to count."""


def _compile(function: Function, cache: bool) -> Function:
    dispatcher = numba.njit(**_OPTIONS)(function)
    if cache:
        dispatcher._cache = _RenewedCache(function)
    result: Function = dispatcher
    return result


class _RenewedCache(FunctionCache):  # type: ignore[misc]
    """Numba's cache of one function, stamped with all that its machine code was made of.

    Numba's own stamp is time and size of the function's file. The functions that are inlined into it, and the constants
    that it uses, may come from other files, and an image or archive may give all files one time: an upgrade would then
    run the old code.

    What cannot be read is compiled again, and replaced. Numba unpickles an index before it compares the stamp, and so
    would fail forever if a type of an old signature is gone, or if a power loss left an empty file.
    """

    def load_overload(self, signature: Any, target: Any) -> Any:
        """See numba; None if there is nothing to load."""
        # Not before the first call: what the function calls may be defined below it.
        self._cache_file._source_stamp = source_stamp(self._py_func)
        try:
            return super().load_overload(signature, target)
        except Exception as error:  # a pickle may raise anything
            _log.info("compiling %s again: its cache cannot be read: %s", self, error)
            self.flush()
            return None


def source_stamp(function: Callable[..., Any]) -> str:
    """Return a hash of a function's bytecode, and of all compiled functions, constants and named tuples it uses."""
    parts = [repr(_OPTIONS), *_sources(function, set())]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _sources(function: Callable[..., Any], seen: set[Any]) -> Iterator[str]:
    if function in seen:
        return
    seen.add(function)
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


def _private_folder() -> Path | None:
    folder = Path(tempfile.gettempdir()) / f"sparkonce-numba-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError:
        return None
    is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077
    return folder if is_ours else None


@intrinsic  # type: ignore[untyped-decorator]
def copy_bytes(_context: Any, target: Any, to: Any, source: Any, position: Any, length: Any) -> Any:  # noqa: ARG001
    """Copy ``length`` bytes from ``source[position:]`` to ``target[to:]``; the caller has checked that they fit.

    A loop over bytes is not recognised as a copy, since the compiler cannot know that the arrays are distinct: calling
    the machine's own memory copy is several times as fast.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kinds = signature.args
        into = context.make_array(kinds[0])(context, builder, arguments[0]).data
        out_of = context.make_array(kinds[2])(context, builder, arguments[2]).data
        cgutils.raw_memcpy(
            builder, builder.gep(into, [arguments[1]]), builder.gep(out_of, [arguments[3]]), arguments[4], 1
        )
        return context.get_dummy_value()

    return types.none(target, types.int64, source, types.int64, types.int64), generate

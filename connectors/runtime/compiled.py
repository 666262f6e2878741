"""Compile functions with numba, and keep their machine code (`machine_code`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic
from numpy.typing import NDArray

from sparkonce.connectors.runtime.machine_code import MachineCode

Bytes = NDArray[np.uint8]
Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]

Function = TypeVar("Function", bound=Callable[..., Any])


_OPTIONS = {"nogil": True, "boundscheck": False, "forceinline": True, "_nrt": False}
"""Inlined and without reference counts the decoder is seven times as quick: otherwise every call copies its arrays'
descriptors and counts references atomically. Nothing here allocates, so there is nothing to count."""


def compiled(function: Function) -> Function:
    """Compile on first use, from the cache if it holds this function; the result releases the GIL."""
    dispatcher = numba.njit(**_OPTIONS)(function)
    dispatcher._cache = MachineCode(function, _OPTIONS)
    result: Function = dispatcher
    return result


def read_only(data: Bytes) -> Bytes:
    """Return a view that compiled functions take: for bytes that may be written to they would be compiled once more."""
    view = data.view()
    view.flags.writeable = False
    return view


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


WIDTH = 16
"""How many bytes `ordinary_bytes`, `digits` and `equal_bytes` look at."""

_BYTE, _BITS = ir.IntType(8), ir.IntType(WIDTH)
_VECTOR = ir.VectorType(_BYTE, WIDTH)


def _all_of(value: int) -> Any:
    return ir.Constant(_VECTOR, [value] * WIDTH)


def _load(context: Any, builder: Any, kind: Any, array: Any, position: Any) -> Any:
    """Load `WIDTH` bytes of an array."""
    source = context.make_array(kind)(context, builder, array).data
    place = builder.bitcast(builder.gep(source, [position]), _VECTOR.as_pointer())
    return builder.load(place, align=1)


def _before_first(builder: Any, marked: Any) -> Any:
    """Return how many bytes are before the first that is marked; `WIDTH` if none is."""
    marks = builder.zext(builder.bitcast(marked, _BITS), ir.IntType(32))
    marks = builder.or_(marks, ir.Constant(ir.IntType(32), 1 << WIDTH))
    return builder.zext(builder.cttz(marks, ir.Constant(ir.IntType(1), 1)), ir.IntType(64))


@intrinsic  # type: ignore[untyped-decorator]
def ordinary_bytes(_context: Any, data: Any, position: Any) -> Any:  # noqa: ARG001
    """Return how many of the `WIDTH` bytes at ``data[position:]``, from the first on, are text within a JSON string.

    That is, before the first quote, backslash or control character. The caller has checked that there are so many
    bytes. One comparison of all in place of a loop: strings are most of a document.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        found = _load(context, builder, signature.args[0], *arguments)
        ends = builder.or_(
            builder.icmp_unsigned("==", found, _all_of(ord('"'))),
            builder.or_(
                builder.icmp_unsigned("==", found, _all_of(ord("\\"))),
                builder.icmp_unsigned("<", found, _all_of(ord(" "))),
            ),
        )
        return _before_first(builder, ends)

    return types.int64(data, types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def leading_digits(_context: Any, data: Any, position: Any) -> Any:  # noqa: ARG001
    """Return how many of the `WIDTH` bytes at ``data[position:]``, from the first on, are digits; as `ordinary_bytes`.

    Numbers differ in length, which a processor cannot predict in a loop over their digits.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        found = builder.sub(_load(context, builder, signature.args[0], *arguments), _all_of(ord("0")))
        return _before_first(builder, builder.icmp_unsigned(">", found, _all_of(9)))

    return types.int64(data, types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def equal_bytes(_context: Any, data: Any, position: Any, other: Any, place: Any) -> Any:  # noqa: ARG001
    """Return how many of the `WIDTH` bytes at ``data[position:]`` and ``other[place:]``, from the first on, are equal.

    The caller has checked that there are so many bytes in both.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kinds = signature.args
        first = _load(context, builder, kinds[0], arguments[0], arguments[1])
        second = _load(context, builder, kinds[2], arguments[2], arguments[3])
        return _before_first(builder, builder.icmp_unsigned("!=", first, second))

    return types.int64(data, types.int64, other, types.int64), generate

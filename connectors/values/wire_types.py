"""Compiled: what the decoders and encoders of binary formats have in common."""

from __future__ import annotations

from typing import Any

import numpy as np

from sparkonce.connectors.runtime.compiled import Bytes, Int64s, compiled
from sparkonce.connectors.values.columns import SPAN_BITS, SPAN_MASK


@compiled
def octet(data: Bytes, at: int) -> Any:
    """Return a byte as a number of 64 bits."""
    return np.int64(data[at])


@compiled
def word(data: Bytes, at: int, width: int) -> int:
    """Return a little-endian number."""
    bits = 0
    for index in range(width):
        bits |= octet(data, at + index) << (8 * index)
    return bits


@compiled
def is_utf8(data: Bytes, position: int, end: int) -> bool:
    """Return whether bytes are UTF-8: without surrogates, overlong forms and numbers beyond Unicode."""
    high = np.uint8(0)
    for index in range(position, end):
        high |= data[index]
    if high < 0x80:
        return True
    while position < end:
        lead = data[position]
        position += 1
        if lead < 0x80:
            continue
        more, least, most = 0, 0x80, 0xBF
        if 0xC2 <= lead <= 0xDF:
            more = 1
        elif 0xE0 <= lead <= 0xEF:
            more = 2
            least = 0xA0 if lead == 0xE0 else 0x80
            most = 0x9F if lead == 0xED else 0xBF
        elif 0xF0 <= lead <= 0xF4:
            more = 3
            least = 0x90 if lead == 0xF0 else 0x80
            most = 0x8F if lead == 0xF4 else 0xBF
        if more == 0 or end - position < more or data[position] < least or data[position] > most:
            return False
        for index in range(1, more):
            if data[position + index] & 0xC0 != 0x80:
                return False
        position += more
    return True


@compiled
def put_word(data: Bytes, at: int, bits: int, width: int) -> int:
    """Write a little-endian number of some bytes; return where it ends."""
    for index in range(width):
        data[at + index] = np.uint8((bits >> (8 * index)) & 0xFF)
    return at + width


@compiled
def float_bits_as_double(bits: int) -> int:
    """Return the 64 bits of a float, which is given by its 32."""
    return int(np.float64(np.int32(bits).view(np.float32)).view(np.int64))


@compiled
def whole_as_double(number: int) -> int:
    """Return the 64 bits of a number as a double."""
    return int(np.float64(number).view(np.int64))


@compiled
def symbol_of(symbols: Int64s, pool: Bytes, first: int, count: int, text: Bytes, span: int) -> int:
    """Return which of ``count`` symbols, with spans in ``pool`` from ``symbols[first]`` on, a text is; -1 if none."""
    start, length = span >> SPAN_BITS, span & SPAN_MASK
    for number in range(count):
        symbol = symbols[first + number]
        if symbol & SPAN_MASK == length:
            place, same = symbol >> SPAN_BITS, True
            for index in range(length):
                if pool[place + index] != text[start + index]:
                    same = False
                    break
            if same:
                return number
    return -1

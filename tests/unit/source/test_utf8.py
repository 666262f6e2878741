"""The compiled check for UTF-8, and what JSON marks by it, beside Python's own decoder."""

from __future__ import annotations

from itertools import product

import numpy as np

from sparkonce.connectors.values.scanning import NULL, Level, check_utf8
from sparkonce.connectors.values.wire_types import is_utf8

LEADS = [
    0x00,
    0x7F,
    0x80,
    0xBF,
    0xC0,
    0xC1,
    0xC2,
    0xDF,
    0xE0,
    0xE1,
    0xEC,
    0xED,
    0xEE,
    0xEF,
    0xF0,
    0xF1,
    0xF3,
    0xF4,
    0xF5,
]
SECONDS = [0x00, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xFF]
THIRDS = [0x7F, 0x80, 0xBF, 0xC0]


def is_decodable(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def test_texts_are_what_python_decodes() -> None:
    texts = [b"", b"abc"] + [bytes(each) for count in range(3) for each in product(LEADS, SECONDS, *[THIRDS] * count)]
    texts += [bytes([each]) for each in range(256)]
    expected = [is_decodable(each) for each in texts]
    assert {True, False} == set(expected)
    data = np.frombuffer(b"".join(texts), np.uint8)
    ends = np.cumsum([len(each) for each in texts], dtype=np.int32)
    starts = (ends - [len(each) for each in texts]).astype(np.int32)
    wrong = [
        text
        for text, start, end, good in zip(texts, starts, ends, expected, strict=True)
        if is_utf8(data, start, end) != good
    ]
    assert wrong == []
    odd = np.zeros(len(texts) + 1, np.uint8)
    nothing = np.array([NULL], np.int32)
    level = Level(np.append(starts, nothing), np.append(ends, nothing), np.arange(len(odd), dtype=np.int32))
    check_utf8(data, level, odd)
    assert odd.tolist() == [*(not each for each in expected), 0]

"""Records as text: a table, blocks with indented JSON, JSON documents, or the bytes of values.

Whatever is in a record, a terminal only gets printable characters and the joiners of scripts and emoji: all others are
written as escapes. What differs looks different: a text that would look like null, nothing or bytes is in quotes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from sparkonce.jobs.cli.peek.decoding import Cell, Decoded, Form, document, guessed, iso

MAX_BYTES_SHOWN = 256
"""The number of bytes of a binary value in a table or a block; other forms have all."""
MAX_KEY, MAX_HEADERS = 40, 60
"""Characters of these columns of a table."""
LEAST = 8
"""Characters of these columns where the terminal is narrow: they leave half of what is left over to the value."""
_GAP = "  "
_LINE_END = re.compile(r"\n")
_JOINER = re.compile(r"(?<=[^\x00-\x7f\u200c\u200d])([\u200c\u200d])")
"""ZWNJ and ZWJ where they belong to what they follow: letters of Persian or Hindi, emoji. In ASCII they only hide."""


def safe(text: str) -> str:
    """Return a text with unprintable characters escaped: control characters, and those that change text direction."""
    if text.isprintable():  # fast for a megabyte, too
        return text
    escapes = {ord(each): _escape(each) for each in set(text) if not each.isprintable()}
    return "".join(part if at % 2 else part.translate(escapes) for at, part in enumerate(_JOINER.split(text)))


def _escape(character: str) -> str:
    plain = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(character)
    number = ord(character)
    return plain or (
        f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"
    )


def one_line(cell: Cell) -> str:
    """Return a key or value on one line."""
    if cell.form is Form.NULL:
        shown = "null"
    elif cell.form is Form.TREE:
        shown = safe(json.dumps(cell.content, ensure_ascii=False, separators=(",", ":")))
    elif cell.form is Form.TEXT:
        shown = safe(_told_apart(cell.content))
    else:
        shown = _hexadecimal(cell.content)
    return shown + _notes(cell)


def _told_apart(text: str) -> str:
    """Return a text, in quotes where it would look like null, nothing, bytes, or one of these in quotes."""
    quotes = min(len(text) - len(text.lstrip('"')), len(text) - len(text.rstrip('"')), len(text) // 2)
    inner = text[quotes : len(text) - quotes]
    return f'"{text}"' if inner in ("", "null") or inner.startswith("0x") or inner != inner.strip(" ") else text


def has_text(each: Decoded, wanted: str) -> bool:
    """Whether the key or the value has this text in it as it is shown, in upper or lower case."""
    return any(wanted.lower() in one_line(cell).lower() for cell in (each.value, each.key))


def _hexadecimal(content: bytes) -> str:
    more = "" if len(content) <= MAX_BYTES_SHOWN else f"… ({len(content)} bytes)"
    return f"0x{content[:MAX_BYTES_SHOWN].hex()}{more}"


def _notes(cell: Cell) -> str:
    if cell.problem is None:
        return ""
    return f"  [{'' if cell.schema is None else f'schema {cell.schema}: '}{safe(cell.problem)}]"


def table(rows: Sequence[Decoded], width: int | None, *, heading: bool = True) -> Iterator[str]:
    """Yield the lines of a table; those longer than ``width`` are cut, keys and headers before the value."""
    with_headers = any(each.record.headers for each in rows)
    names = ["PARTITION", "OFFSET", "TIMESTAMP", "KEY", *(["HEADERS"] if with_headers else []), "VALUE"]
    lines = [names] if heading else []
    for each in rows:
        record = each.record
        headers = [_cut(_headers(each), MAX_HEADERS)] if with_headers else []
        at = [str(record.partition), str(record.offset), iso(record.timestamp_ms) or "-"]
        lines.append([*at, _cut(one_line(each.key), MAX_KEY), *headers, one_line(each.value)])
    if width is not None and lines:
        lines = _fitted(lines, width)
    widths = [max(len(line[column]) for line in lines) for column in range(len(names) - 1)] if lines else []
    for line in lines:
        cells = [
            cell.rjust(size) if at < 2 else cell.ljust(size)
            for at, (cell, size) in enumerate(zip(line, widths, strict=False))
        ]
        whole = _GAP.join([*cells, line[-1]])
        yield whole if width is None else _cut(whole, width)


def _fitted(lines: Sequence[list[str]], width: int) -> list[list[str]]:
    """Cut the columns between time and value so that half of the rest of the width is left to the value, if needed."""
    sizes = [max(map(len, column)) for column in zip(*lines, strict=True)]
    room = width - sum(sizes[:3]) - len(_GAP) * (len(sizes) - 1)
    room -= min(sizes[-1], room // 2)
    between = sorted(range(3, len(sizes) - 1), key=sizes.__getitem__)
    for left, at in zip(range(len(between), 0, -1), between, strict=True):  # the shorter one leaves more to the other
        sizes[at] = min(sizes[at], max(room // left, LEAST))
        room -= sizes[at]
    return [[_cut(cell, sizes[at]) if at in between else cell for at, cell in enumerate(line)] for line in lines]


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def _headers(each: Decoded) -> str:
    return ", ".join(f"{safe(key)}={one_line(guessed(value))}" for key, value in each.record.headers)


def block(each: Decoded) -> Iterator[str]:
    """Yield the lines of one record, with its value as indented JSON."""
    record = each.record
    yield f"── partition {record.partition}, offset {record.offset}, {iso(record.timestamp_ms) or 'no timestamp'}"
    yield from about(each)
    yield from value_lines(each.value)


def about(each: Decoded) -> Iterator[str]:
    """Yield lines with the key, the headers, and the schema of a record's value."""
    yield f"key     {one_line(each.key)}"
    for key, value in each.record.headers:
        yield f"header  {safe(key)}: {one_line(guessed(value))}"
    if each.value.schema is not None:
        yield f"schema  {each.value.schema}"


def value_lines(value: Cell) -> Iterator[str]:
    """Yield the lines of a value, as indented JSON."""
    yield from value_text(value).split("\n")


def value_text(value: Cell, most: int | None = None) -> str:
    """Return a value in lines, as indented JSON; with ``most`` its beginning, of a little more characters than that."""
    if value.form is Form.TREE:
        text = indented(value.content, most)
    elif value.form is Form.TEXT:
        text = _told_apart(value.content)
    else:
        text = one_line(value)
    return "\n".join(safe(line) for line in _LINE_END.split(text))


def indented(content: Any, most: int | None = None) -> str:
    """Return a value as indented JSON, which may be a thousand times as long as it is; with ``most``, as above."""
    parts, length = list[str](), 0
    for part in json.JSONEncoder(ensure_ascii=False, indent=2).iterencode(content):
        parts.append(part)
        length += len(part)
        if most is not None and length > most:
            break
    return "".join(parts)


def as_json(each: Decoded, topic: str) -> str:
    """Return a record as one JSON document, in ASCII."""
    return json.dumps(document(each, topic))


def raw(each: Decoded, *, terminal: bool) -> bytes:
    """Return the bytes of a value as stored, and a line end; for a terminal, escaped."""
    value = each.record.value or b""
    return (safe(value.decode(errors="backslashreplace")).encode() if terminal else value) + b"\n"

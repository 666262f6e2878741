"""A reader of JSON tokens that fails where Jackson's does.

Spark's ``from_json`` works on the tokens of Jackson's ReaderBasedJsonParser, and in PERMISSIVE mode continues after a
token that failed. So the result for a damaged document depends on when Jackson reads a value: literals and numbers
when the name before them is read, the inside of a string only when its text is requested. `Tokens` does the same,
as Spark configures it: single quotes and NaN, Infinity, +INF, -INF are allowed; comments, unquoted names, leading zeros
and trailing commas are not.

It is for the few records that the compiled path leaves undecided: exact rather than fast.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from unicodedata import category

MAX_DEPTH = 1000
MAX_NUMBER_LENGTH = 1000
MAX_NAME_LENGTH = 50_000
"""StreamReadConstraints' limits."""

BUFFER_UNITS = 4000
"""The number of UTF-16 units that Jackson buffers."""

MAX_QUOTED = 20
"""The number of characters of a word that an error quotes."""

_SPACES = " \t\r\n"
_DIGITS = "0123456789"
_SPACE = re.compile(f"[{_SPACES}]*")
_SOME_DIGITS = re.compile(f"[{_DIGITS}]*")
_PLAIN = {quote: re.compile(rf"[^{quote}\\\x00-\x1f]*") for quote in "\"'"}
"""Characters of a string that need no handling, by the quote that ends it."""
_ESCAPES = {"b": "\b", "t": "\t", "n": "\n", "f": "\f", "r": "\r", '"': '"', "/": "/", "\\": "\\", "'": "'"}
_HALVES = re.compile("[\ud800-\udfff]")
_SURROGATE_BYTES = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
_BEGINS_IDENTIFIER = frozenset({"Lu", "Ll", "Lt", "Lm", "Lo", "Nl", "Sc", "Pc"})
_IN_IDENTIFIER = _BEGINS_IDENTIFIER | {"Nd", "Mc", "Mn", "Cf"}
_BASE64 = {char: bits for bits, char in enumerate("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")}


class JsonError(ValueError):
    """Text that is not JSON; the message says what, and at which character."""


class Token(Enum):
    """The kinds of tokens."""

    START_OBJECT = auto()
    END_OBJECT = auto()
    START_ARRAY = auto()
    END_ARRAY = auto()
    NAME = auto()
    STRING = auto()
    INTEGER = auto()
    FLOAT = auto()
    TRUE = auto()
    FALSE = auto()
    NULL = auto()


@dataclass(slots=True)
class _Scope:
    """The object, the array (or neither, at the root) that is being read."""

    closer: str
    entries: int = 0
    name: str | None = None


class Tokens:
    """The tokens of one text, read on demand."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0
        self._scopes = [_Scope("")]
        self._unread = False
        self._ahead: Token | None = None
        self.token: Token | None = None
        self.literal = ""
        """The text of a number, unchanged; NaN, Infinity or -Infinity for those."""
        self._string = ""

    @property
    def name(self) -> str | None:
        """The name of the field that is being read, None in an array; see `characters`."""
        opened = self.token in (Token.START_OBJECT, Token.START_ARRAY)
        return self._scopes[-2 if opened else -1].name

    def next(self) -> Token | None:
        """Advance to the next token, and return it; None after the last one.

        Raises:
            JsonError: if the text is not one. Later calls continue from there.
        """
        if self.token is Token.NAME:
            self.token, self._ahead = self._ahead, None
            if self.token in (Token.START_OBJECT, Token.START_ARRAY):
                self._open(self.token)
            return self.token
        if self._unread:
            self._unread = False
            self._read_string('"')
        char = self._skip_space()
        if not char:
            if len(self._scopes) > 1:
                raise self._error("it ends too early")
            self.token = None
            return None
        if char in "]}":
            return self._close(char)
        scope = self._scopes[-1]
        scope.entries += 1
        if scope.closer and scope.entries > 1:
            if char != ",":
                raise self._error("expected a comma")
            char = self._skip_space()
        if scope.closer == "}":
            return self._field(scope, char)
        self.token = token = self._value(char)
        if token in (Token.START_OBJECT, Token.START_ARRAY):
            self._open(token)
        return token

    def skip_children(self) -> None:
        """Advance to the end of the object or array that begins here; do nothing anywhere else."""
        if self.token not in (Token.START_OBJECT, Token.START_ARRAY):
            return
        depth = 1
        while depth:
            token = self.next()
            if token is None:
                raise self._error("it ends too early")
            depth += token in (Token.START_OBJECT, Token.START_ARRAY)
            depth -= token in (Token.END_OBJECT, Token.END_ARRAY)

    def string(self) -> str:
        """Return the text of a string."""
        return well_formed(self.characters())

    def characters(self) -> str:
        """Return the text of a string as Java has it, in which halves of surrogate pairs may be."""
        if self._unread:
            self._unread = False
            self._string = _joined(self._read_string('"'))
        return self._string

    def binary(self) -> bytes:
        """Return the bytes of a string in base64, with padding.

        If it is not base64, the reader stops in the middle, and skips the rest of the string from there.
        """
        if self._unread:
            decoded = self._base64(self._take, '"')
            self._unread = False
            return decoded
        chars = iter(self._string)
        return self._base64(lambda: next(chars, ""), "")

    def _base64(self, take: Callable[[], str], end: str) -> bytes:
        """Decode as Base64Variants.MIME_NO_LINEFEEDS does: spaces may precede each group of four."""
        made = bytearray()
        group: list[int] = []
        padding = 0
        while (char := take()) != end:
            if char == "\\" and end:
                char = self._escaped()
            if not char:
                raise self._error("a string does not end")
            if char <= " " and not group:
                continue
            if char == "=" and len(group) in (2, 3):
                padding += 1
            elif padding or char not in _BASE64:
                raise self._error("it is not base64")
            else:
                group.append(_BASE64[char])
            if len(group) + padding == 4:
                made += _bytes_of(group)
                group, padding = [], 0
        if group:
            if end and padding == 0 and len(group) > 1:
                self._position -= 1  # here, and only here, Jackson stays before the quote
            raise self._error("it is not base64")
        return bytes(made)

    def _field(self, scope: _Scope, char: str) -> Token:
        if not char or char not in "\"'":
            raise self._error("expected the name of a field")
        name = self._read_string(char)
        if len(name.encode("utf-16-le", "surrogatepass")) > 2 * MAX_NAME_LENGTH:
            raise self._error(f"a name has more than {MAX_NAME_LENGTH} characters")
        scope.name = _joined(name)
        self.token = Token.NAME
        if self._skip_space() != ":":
            raise self._error("expected a colon")
        self._ahead = self._value(self._skip_space())
        return Token.NAME

    def _value(self, char: str) -> Token:
        if char == '"':
            self._unread = True
            return Token.STRING
        if char == "{":
            return Token.START_OBJECT
        if char == "[":
            return Token.START_ARRAY
        if char and char in "tfn":
            word, token = {"t": ("true", Token.TRUE), "f": ("false", Token.FALSE), "n": ("null", Token.NULL)}[char]
            self._match(word, 1)
            return token
        if char and char in _DIGITS:
            return self._number(char)
        if char == "-":
            return self._negative()
        if char == "+":
            return self._infinity(self._take(), "+")
        if char == "'":
            self._string = _joined(self._read_string("'"))
            return Token.STRING
        if char in ("N", "I"):
            self.literal = {"N": "NaN", "I": "Infinity"}[char]
            self._match(self.literal, 1)
            return Token.FLOAT
        if char and _begins_identifier(char):
            raise self._no_value(self._position - 1)
        raise self._error("expected a value")

    def _negative(self) -> Token:
        char = self._take()
        if char and char in _DIGITS:
            return self._number("-" + char)
        return self._infinity(char, "-")

    def _infinity(self, char: str, sign: str) -> Token:
        if char == "I":
            second = self._take()
            if second in ("N", "n"):
                word = f"{sign}INF" if second == "N" else f"{sign}Infinity"
                self._match(word, 3)
                self.literal = "-Infinity" if sign == "-" else "Infinity"
                return Token.FLOAT
        raise self._error("expected a digit")

    def _number(self, begun: str) -> Token:
        start = self._position - len(begun)
        if begun[-1] == "0" and self._peek() in _DIGITS and self._peek():
            raise self._error("a number has a leading zero")
        self._digits()
        whole_end = self._position
        token = Token.INTEGER
        if self._peek() == ".":
            token = Token.FLOAT
            self._position += 1
            if not self._digits():
                raise self._no_digit(start, whole_end)
        if self._peek() in ("e", "E"):
            token = Token.FLOAT
            self._position += 1
            if self._peek() in ("+", "-"):
                self._position += 1
            if not self._digits():
                raise self._no_digit(start, whole_end)
        self.literal = self._text[start : self._position]
        if len(self.literal) > MAX_NUMBER_LENGTH:
            raise self._error(f"a number has more than {MAX_NUMBER_LENGTH} characters")
        return token

    def _no_digit(self, start: int, whole_end: int) -> JsonError:
        """Return the error of a number that begins at ``start`` and lacks a digit, and move to where Jackson continues.

        It looks ahead from the character behind the whole part, and stays there. A number that begins with 0, or that
        is in two of its buffers, it reads one by one, and goes on behind the character that is no digit.
        """
        error = self._error("expected a digit")
        one_by_one = self._text[start : start + 2].lstrip("-")[:1] == "0" or self._buffer_end(start) <= self._position
        self._position = min(self._position + 1, len(self._text)) if one_by_one else whole_end + 1
        return error

    def _buffer_end(self, position: int) -> int:
        """Return where the buffer of Jackson ends that holds a position."""
        end = 0
        while end <= position:
            units = self._text[end : end + BUFFER_UNITS].encode("utf-16-le")[: 2 * BUFFER_UNITS]
            end += len(units.decode("utf-16-le", "ignore"))  # half a character at the end is left to the next
        return end

    def _digits(self) -> int:
        found = _SOME_DIGITS.match(self._text, self._position)
        assert found is not None
        self._position = found.end()
        return len(found[0])

    def _match(self, word: str, matched: int) -> None:
        """Read the rest of a literal, of which ``matched`` characters are read; no identifier may follow directly."""
        start = self._position - matched
        for expected in word[matched:]:
            if self._peek() != expected:
                raise self._no_value(start)
            self._position += 1
        char = self._peek()
        if char and char >= "0" and char not in "]}" and _in_identifier(char):
            raise self._no_value(start)

    def _no_value(self, start: int) -> JsonError:
        """Skip the word that begins at ``start`` and is not JSON's, and return the error that quotes it."""
        self._skip_identifier()
        word = self._text[start : min(self._position, start + MAX_QUOTED)]
        return JsonError(f"expected a value, found {word!r} at character {start + 1}")

    def _skip_identifier(self) -> None:
        while (char := self._peek()) and _in_identifier(char):
            self._position += 1

    def _read_string(self, quote: str) -> str:
        plain = _PLAIN[quote]
        parts: list[str] = []
        while True:
            found = plain.match(self._text, self._position)
            assert found is not None
            self._position = found.end()
            parts.append(found[0])
            char = self._take()
            if char == quote:
                return "".join(parts)
            if not char:
                raise self._error("a string does not end")
            if char != "\\":
                raise self._error("a string holds a control character that is not escaped")
            parts.append(self._escaped())

    def _escaped(self) -> str:
        char = self._take()
        if char != "u":
            if char not in _ESCAPES:
                raise self._error("there is no such escape")
            return _ESCAPES[char]
        number = 0
        for _ in range(4):
            char = self._take()
            if not char or char not in "0123456789abcdefABCDEF":
                raise self._error("an escape has no four hexadecimal digits")
            number = number * 16 + int(char, 16)
        return chr(number)

    def _skip_space(self) -> str:
        """Skip the next character that is not a space, and return it; an empty text at the end."""
        char = self._take()
        if char and char in _SPACES:
            found = _SPACE.match(self._text, self._position)
            assert found is not None
            self._position = found.end()
            char = self._take()
        if char and char < " ":
            raise self._error("there is a control character")
        if char == "/":
            raise self._error("comments are not allowed")
        return char

    def _open(self, token: Token) -> None:
        self._scopes.append(_Scope("}" if token is Token.START_OBJECT else "]"))
        if len(self._scopes) > MAX_DEPTH + 1:
            raise self._error(f"it is nested more than {MAX_DEPTH} deep")

    def _close(self, char: str) -> Token:
        if self._scopes[-1].closer != char:
            raise self._error(f"unexpected {char}")
        self._scopes.pop()
        self.token = Token.END_OBJECT if char == "}" else Token.END_ARRAY
        return self.token

    def _peek(self) -> str:
        return self._text[self._position : self._position + 1]

    def _take(self) -> str:
        char = self._text[self._position : self._position + 1]
        self._position += len(char)
        return char

    def _error(self, what: str) -> JsonError:
        return JsonError(f"{what} at character {self._position}")


def text_of(raw: bytes) -> str:
    """Return the characters that Java reads from bytes: invalid UTF-8 becomes a replacement character.

    A surrogate, whole or cut, is one replacement character there, and one for each byte in Python.
    """
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return _SURROGATE_BYTES.sub(b"\xff", raw).decode(errors="replace")


def _joined(text: str) -> str:
    """Join surrogate pairs, which escapes can produce."""
    if not _HALVES.search(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def well_formed(text: str) -> str:
    """Return a text in which a lone half of a surrogate pair has become a question mark, as in Java's getBytes."""
    return _HALVES.sub("?", text)


def _in_identifier(char: str) -> bool:
    """Return Java's ``isJavaIdentifierPart`` of the first UTF-16 unit."""
    ignored = char < "\x09" or "\x0e" <= char <= "\x1b" or "\x7f" <= char <= "\x9f"
    return ignored or (char <= "\uffff" and category(char) in _IN_IDENTIFIER)


def _begins_identifier(char: str) -> bool:
    return char <= "\uffff" and category(char) in _BEGINS_IDENTIFIER


def _bytes_of(group: list[int]) -> bytes:
    number = 0
    for bits in group:
        number = number << 6 | bits
    spare = len(group) * 6 % 8
    return (number >> spare).to_bytes(len(group) * 6 // 8, "big")

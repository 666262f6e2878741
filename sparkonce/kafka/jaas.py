r"""`sasl.jaas.config`: a login module and its options.

    org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="alice-secret";

Parsed as by Kafka's `JaasConfig`, which uses Java's `StreamTokenizer`: words consist of letters, digits and ``.-_$``
and do not begin with a digit; anything else is quoted; a backslash in quotes begins an escape (``\n``, octal ``\101``);
a slash begins a comment. The text contains passwords, so no error shows any of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

PLAIN_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"

_FLAGS: Final = ("REQUIRED", "REQUISITE", "SUFFICIENT", "OPTIONAL")
_TOKEN: Final = re.compile(
    r"""(?P<skipped>[\x00-\x20]+|/\*.*?(?:\*/|\Z)|/.?[^\r\n]*)"""
    r"""|(?P<number>-?(?:\d+\.?\d*|\.\d+))"""
    r"""|(?P<word>[A-Za-z_$\xa0-\U0010ffff][A-Za-z0-9._$\xa0-\U0010ffff-]*)"""
    r"""|"(?P<double>(?:\\.|[^"\\\r\n])*)(?P<double_end>"?)"""
    r"""|'(?P<single>(?:\\.|[^'\\\r\n])*)(?P<single_end>'?)"""
    r"""|(?P<sign>.)""",
    re.DOTALL,
)
_ESCAPE: Final = re.compile(r"\\([0-3][0-7]{0,2}|[0-7]{1,2}|.)", re.DOTALL)
_ESCAPED: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


class JaasError(ValueError):
    """A JAAS line is invalid; the message shows nothing of it."""


@dataclass(frozen=True, slots=True)
class LoginModule:
    """The class of a login module, and its options."""

    name: str
    options: Mapping[str, str] = field(repr=False)

    @property
    def users(self) -> Mapping[str, str]:
        """The passwords of a broker's users, which are options named ``user_…``, by the users' names."""
        return {name.removeprefix("user_"): value for name, value in self.options.items() if name.startswith("user_")}


def read_jaas(text: str) -> LoginModule:
    """Parse a login module. Raises JaasError if the text is invalid, or has more than one."""
    tokens = _tokens(text)
    name, flag = _next(tokens), _next(tokens)
    if name is None:
        raise JaasError("it begins with a login module's class")
    if flag is None or flag.upper() not in _FLAGS:
        raise JaasError(f"after the login module one of {', '.join(_FLAGS).lower()} is expected")
    options: dict[str, str] = {}
    for kind, key in tokens:
        if (kind, key) == ("sign", ";"):
            if next(tokens, None) is not None:
                raise JaasError("there is more than one login module")
            return LoginModule(name, options)
        equals, value = next(tokens, None), _next(tokens)
        if kind == "sign" or equals != ("sign", "=") or value is None:
            break
        options[key] = value
    raise JaasError(
        'its options are written name="value", with blanks between them and one semicolon at the end; in a value '
        r"\" stands for a quotation mark and \\ for a backslash"
    )


def _next(tokens: Iterator[tuple[str, str]]) -> str | None:
    kind, text = next(tokens, ("sign", ""))
    return None if kind == "sign" else text


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    """Yield the tokens between blanks and comments: whether it is a `word` or a `sign`, and its text."""
    for found in _TOKEN.finditer(text):
        kind = found.lastgroup
        if kind in ("double_end", "single_end"):
            yield "word", _ESCAPE.sub(_unescaped, found["double"] if kind == "double_end" else found["single"])
        elif kind == "number":  # Kafka reads it as a number, and so not as text
            yield "sign", found[0]
        elif kind != "skipped":
            yield str(kind), found[0]


def _unescaped(escape: re.Match[str]) -> str:
    text = escape[1]
    return chr(int(text, 8)) if text[0] in "01234567" else _ESCAPED.get(text, text)

"""Kafka's `sasl.jaas.config` of a broker: which login module, which users.

    org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="alice-secret" user_bob="bob-secret";

Options named `user_<name>` are users and their passwords. `username` and `password` are what Kafka's broker would log
in with at other brokers; there are none here, so they are ignored. No error shows a value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

PLAIN_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
USER_OPTION: Final = "user_"

_FLAGS: Final = frozenset({"required", "requisite", "sufficient", "optional"})
_TOKEN: Final = re.compile(r"""\s*(?:"((?:\\.|[^"\\])*)"|'((?:\\.|[^'\\])*)'|([=;])|([^\s=;"']+))""", re.DOTALL)
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r"}


class JaasError(ValueError):
    """A JAAS line that cannot be read; the message shows no value of it."""


def users(line: str, module: str) -> Mapping[str, str]:
    """Return the users of one login module's line and their passwords.

    Raises:
        JaasError: if the line is of another module or malformed.
    """
    tokens = _tokens(line)
    if len(tokens) < 3 or tokens[-1] != (";", True):
        raise JaasError(f"expected '{module} required user_<name>=\"<password>\" ... ;'")
    if tokens[0] != (module, False):
        raise JaasError(f"the login module here must be {module}")
    if tokens[1][0].lower() not in _FLAGS:
        raise JaasError(f"after the login module one of {', '.join(sorted(_FLAGS))} is expected")
    options = tokens[2:-1]
    found = {}
    for index in range(0, len(options), 3):
        match options[index : index + 3]:
            case [(name, False), ("=", True), (value, False)]:
                if name.startswith(USER_OPTION):
                    found[name.removeprefix(USER_OPTION)] = value
            case _:
                raise JaasError(
                    'options are written name="value", with blanks between them and one semicolon at the end'
                )
    return found


def _tokens(line: str) -> list[tuple[str, bool]]:
    """Split a line into words, and signs (marked True)."""
    tokens = []
    position = 0
    end = len(line.rstrip())
    while position < end:
        match = _TOKEN.match(line, position)
        if match is None:
            raise JaasError("a quotation mark is missing")
        double, single, sign, word = match.groups()
        if sign is not None:
            tokens.append((sign, True))
        elif word is not None:
            tokens.append((word, False))
        else:
            tokens.append((_unescaped(double if double is not None else single), False))
        position = match.end()
    return tokens


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[1]), text, flags=re.DOTALL)

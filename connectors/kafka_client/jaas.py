"""The setting ``sasl.jaas.config``: one login module and its options, as Kafka's `JaasConfig` reads them.

The text holds a password, so no error shows any of it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from sparkonce.connectors.settings.options import OptionError

MODULES = {
    "PlainLoginModule": ("PLAIN",),
    "ScramLoginModule": ("SCRAM-SHA-256", "SCRAM-SHA-512"),
    "OAuthBearerLoginModule": ("OAUTHBEARER",),
}
"""The supported login modules of Apache Kafka, and the mechanisms of each."""

_MODULE = re.compile(r"\s*(?:\S+\.)?(\w+)\s+(?i:(?:required|requisite|sufficient|optional)\b)?")
_OPTION = re.compile(
    r"""\s*([\w.$-]+)\s*=\s*(?:"((?:\\.|[^"\\])*)"|'((?:\\.|[^'\\])*)'|([^\s"';=]+))(?=[\s;]|$)""", re.DOTALL
)
_ESCAPE = re.compile(r"\\([0-3][0-7]{2}|[0-7]{1,2}|.)", re.DOTALL)
_ESCAPED = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


@dataclass(frozen=True, slots=True)
class LoginModule:
    """A login module's plain name, and its options."""

    name: str
    options: Mapping[str, str] = field(repr=False)


def read_jaas(text: str) -> LoginModule:
    """Read a login module's line.

    Raises:
        OptionError: if the line is invalid, or its module is none of `MODULES`.
    """
    module = _MODULE.match(text)
    if module is None or module[1] not in MODULES:
        raise OptionError(
            "kafka_once: option kafka.sasl.jaas.config names a login module other than "
            f"{', '.join(MODULES)}; set kafka.sasl.mechanism, kafka.sasl.username and kafka.sasl.password instead"
        )
    found: dict[str, str] = {}
    position = module.end()
    while (option := _OPTION.match(text, position)) is not None:
        name, double, single, word = option.groups()
        quoted = single if double is None else double
        found[name] = word if quoted is None else _ESCAPE.sub(_unescaped, quoted)
        position = option.end()
    if text[position:].strip() not in ("", ";"):
        raise OptionError(
            'kafka_once: option kafka.sasl.jaas.config cannot be read: its options are written name="value", with '
            'blanks between them and one semicolon at the end; inside of a value \\" stands for a quotation mark. Or '
            "set kafka.sasl.username and kafka.sasl.password instead"
        )
    return LoginModule(module[1], found)


def _unescaped(escape: re.Match[str]) -> str:
    """Return what stands for itself behind a backslash, as Java's `StreamTokenizer` has it: numbers are octal."""
    text = escape[1]
    return chr(int(text, 8)) if text.isdigit() and text[0] < "8" else _ESCAPED.get(text, text)

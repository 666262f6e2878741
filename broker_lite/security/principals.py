"""The principal of a client with a certificate: its subject, as Java writes it (RFC 2253), mapped by rules.

The last component of the name comes first: a certificate of C=NL, O=Example, CN=alice is `CN=alice,O=Example,C=NL`.
Types without a name in RFC 2253 are written as numbers, their values in hexadecimal, as in Java.
`ssl.principal.mapping.rules` maps the name to another (KIP-371): `RULE:^CN=([^,]+),.*$/$1/L,DEFAULT`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_KEYWORDS: Final = {
    "2.5.4.3": "CN", "2.5.4.6": "C", "2.5.4.7": "L", "2.5.4.8": "ST", "2.5.4.9": "STREET", "2.5.4.10": "O",
    "2.5.4.11": "OU", "0.9.2342.19200300.100.1.25": "DC", "0.9.2342.19200300.100.1.1": "UID",
}  # fmt: skip
_ENCODINGS: Final = {
    0x0C: "utf-8", 0x13: "ascii", 0x14: "latin-1", 0x16: "ascii", 0x1C: "utf-32-be", 0x1E: "utf-16-be",
}  # fmt: skip
_SEQUENCE, _OBJECT_IDENTIFIER, _VERSION = 0x30, 0x06, 0xA0


class PrincipalError(ValueError):
    """A certificate has no valid principal, or rules are invalid."""


def subject_of(certificate: bytes) -> str:
    """Return the subject of a certificate in DER, as RFC 2253. Raises PrincipalError if the bytes are none."""
    try:
        fields = _elements(_only(_only(certificate, _SEQUENCE), _SEQUENCE))
        position = 5 if fields[0][0] == _VERSION else 4  # after serial number, algorithm, issuer and validity
        names = [_relative_name(content) for _, content, _ in _elements(fields[position][1])]
    except (IndexError, ValueError) as error:
        raise PrincipalError(f"the certificate is malformed: {error}") from None
    return ",".join(reversed(names))


def _relative_name(content: bytes) -> str:
    parts = []
    for _, pair, _ in _elements(content):
        (tag, number, _), (kind, value, whole) = _elements(pair)
        if tag != _OBJECT_IDENTIFIER:
            raise ValueError("a name without a type")
        identifier = _dotted(number)
        keyword = _KEYWORDS.get(identifier)
        if keyword is None or kind not in _ENCODINGS:
            parts.append(f"{keyword or identifier}=#{whole.hex()}")
        else:
            parts.append(f"{keyword}={_escaped(value.decode(_ENCODINGS[kind]))}")
    return "+".join(parts)


def _escaped(value: str) -> str:
    value = re.sub(r'([,+"\\<>;])', r"\\\1", value)
    value = re.sub(r"^([# ])", r"\\\1", value)
    return re.sub(r"(?<!\\) $", r"\\ ", value)


def _dotted(number: bytes) -> str:
    arcs, value = [], 0
    for byte in number:
        value = value << 7 | byte & 0x7F
        if not byte & 0x80:
            arcs.append(value)
            value = 0
    first = min(arcs[0] // 40, 2)  # the first two are one number
    return ".".join(map(str, (first, arcs[0] - 40 * first, *arcs[1:])))


def _only(data: bytes, tag: int) -> bytes:
    found, content, _ = _elements(data)[0]
    if found != tag:
        raise ValueError(f"tag {found:#x} where {tag:#x} is expected")
    return content


def _elements(data: bytes) -> list[tuple[int, bytes, bytes]]:
    """Return the elements of DER data: tag, content, and all of it."""
    elements = []
    position = 0
    while position < len(data):
        tag, length, begin = data[position], data[position + 1], position + 2
        if length & 0x80:
            count = length & 0x7F
            length = int.from_bytes(data[begin : begin + count], "big")
            begin += count
        end = begin + length
        if end > len(data):
            raise ValueError("it ends too early")
        elements.append((tag, data[begin:end], data[position:end]))
        position = end
    return elements


_RULE = re.compile(r"\s*(?:(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?))\s*(?:,|$)")


@dataclass(frozen=True, slots=True)
class PrincipalRule:
    """A rule: pattern, replacement, and L or U for its case; without a pattern the name is unchanged."""

    pattern: re.Pattern[str] | None
    replacement: str = ""
    case: str = ""

    def apply(self, name: str) -> str | None:
        """Return the mapped name, or None if the rule does not match."""
        if self.pattern is None:
            return name
        if self.pattern.fullmatch(name) is None:
            return None
        new = self.pattern.sub(self.replacement, name).strip()
        return {"L": new.lower(), "U": new.upper()}.get(self.case, new)


def read_rules(text: str) -> tuple[PrincipalRule, ...]:
    """Parse `ssl.principal.mapping.rules`. Raises PrincipalError if it is invalid."""
    rules = []
    position = 0
    while position < len(text):
        match = _RULE.match(text, position)
        if match is None:
            raise PrincipalError(
                f"ssl.principal.mapping.rules cannot be read at {text[position : position + 40]!r}: "
                "expected RULE:<pattern>/<replacement>/ with L, U or nothing after it, or DEFAULT"
            )
        default, pattern, replacement, case = match.groups()
        rules.append(PrincipalRule(None) if default else _rule(pattern, replacement, case))
        position = match.end()
    return tuple(rules) or (PrincipalRule(None),)


def _rule(pattern: str, replacement: str, case: str) -> PrincipalRule:
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise PrincipalError(f"ssl.principal.mapping.rules: {pattern!r} is no pattern: {error}") from None
    # Java writes groups as $1, and a backslash before literal characters.
    python = re.sub(
        r"\\(.)|\$(\d)|(\\)",
        lambda match: rf"\g<{match[2]}>" if match[2] else ("\\\\" if match[1] in (None, "\\") else match[1]),
        replacement,
    )
    return PrincipalRule(compiled, python, case)


def mapped(name: str, rules: tuple[PrincipalRule, ...]) -> str:
    """Return the name to which the first matching rule maps a subject. Raises PrincipalError if no rule matches."""
    for rule in rules:
        new = rule.apply(name)
        if new is not None:
            return new
    raise PrincipalError(f"no rule of ssl.principal.mapping.rules fits {name!r}")

"""Translates Java's regular expressions, as in option ``subscribePattern``, for Python's `re`.

The two languages share most of their grammar. What is spelled differently is rewritten; what has no equivalent in
Python is rejected with its position. Topic names have only ASCII letters, digits, ``.``, ``_`` and ``-``, so classes of
characters need to be right for ASCII only, and line ends do not occur.

Source: the class comment of ``java.util.regex.Pattern``, Java 17.
"""

from __future__ import annotations

import re
import string
import unicodedata
import warnings
from collections.abc import Callable

_ASCII = [chr(code) for code in range(128)]
_POSIX = {
    "Lower": string.ascii_lowercase,
    "Upper": string.ascii_uppercase,
    "ASCII": "".join(_ASCII),
    "Alpha": string.ascii_letters,
    "Digit": string.digits,
    "Alnum": string.ascii_letters + string.digits,
    "Punct": string.punctuation,
    "Graph": string.ascii_letters + string.digits + string.punctuation,
    "Print": string.ascii_letters + string.digits + string.punctuation + " ",
    "Blank": " \t",
    "Cntrl": "".join(each for each in _ASCII if unicodedata.category(each) == "Cc"),
    "XDigit": string.hexdigits,
    "Space": string.whitespace,
    "IsAlphabetic": string.ascii_letters,
    "IsLetter": string.ascii_letters,
    "IsLowercase": string.ascii_lowercase,
    "IsUppercase": string.ascii_uppercase,
    "IsDigit": string.digits,
    "IsLatin": string.ascii_letters,
    "javaLowerCase": string.ascii_lowercase,
    "javaUpperCase": string.ascii_uppercase,
}
_SAME_ESCAPES = frozenset("dDsSwWbBtnrfaA")
_PREDEFINED = {"h": " \t", "v": "\n\x0b\f\r"}
_FLAGS_WITHOUT_BEARING = "duU"
"""Unix lines, Unicode case and Unicode classes: without effect in ASCII without line ends."""


class PatternError(ValueError):
    """A pattern that is no valid Java regular expression, or has no equivalent in Python; the message says where."""


def compile_java_pattern(pattern: str) -> re.Pattern[str]:
    """Compile a pattern of Java's. Raises PatternError if it is invalid, or has no equivalent in `re`."""
    translated = _Translation(pattern).run()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # nested sets, which `re` may support one day
            return re.compile(translated, re.ASCII)
    except (re.error, OverflowError, RecursionError) as error:
        raise PatternError(f"not a regular expression, or one that only Java has: {error}") from error


class _Translation:
    """One walk over a pattern; ``_at`` is the position of the next character."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0

    def run(self) -> str:
        parts: list[str] = []
        rules: dict[str, Callable[[], str]] = {
            "\\": self._escape,
            "[": self._class,
            "(": self._group,
            "{": self._counted,
        }
        while self._at < len(self._pattern):
            rule = rules.get(self._pattern[self._at])
            parts.append(rule() if rule else self._next())
        return "".join(parts)

    def _next(self) -> str:
        if self._at >= len(self._pattern):
            raise PatternError("the pattern ends too early")
        self._at += 1
        return self._pattern[self._at - 1]

    def _peek(self, text: str) -> bool:
        return self._pattern.startswith(text, self._at)

    def _refuse(self, what: str, at: int) -> PatternError:
        return PatternError(f"{what} at position {at} has no equivalent in Python's regular expressions")

    def _up_to(self, closing: str) -> str:
        end = self._pattern.find(closing, self._at)
        if end < 0:
            raise PatternError(f"{closing!r} is missing after position {self._at}")
        text, self._at = self._pattern[self._at : end], end + len(closing)
        return text

    def _group(self) -> str:
        """Rewrite named groups, and flags; whatever else may follow ``(?`` is the same."""
        start = self._at
        self._at += 1
        if not self._peek("?"):
            return "("
        named = re.compile(r"\?<([a-zA-Z][a-zA-Z0-9]*)>").match(self._pattern, self._at)
        if named:
            self._at = named.end()
            return f"(?P<{named[1]}>"
        flags = re.compile(r"\?([a-zA-Z]*)(-[a-zA-Z]*)?([:)])").match(self._pattern, self._at)
        if not flags:
            alike = re.compile(r"\?(?:<[=!]|[=!>])").match(self._pattern, self._at)
            if not alike:
                raise self._refuse(self._pattern[start : start + 4], start)
            self._at = alike.end()
            return "(" + alike[0]
        self._at = flags.end()
        on, off = (self._flags(text or "", start) for text in flags.group(1, 2))
        if flags[3] == ":":
            return f"(?{on}-{off}:" if off else f"(?{on}:"
        if off or (on and start):
            raise self._refuse(f"the flag '({flags[0]}' in the middle", start)
        return f"(?{on})" if on else ""

    def _flags(self, text: str, start: int) -> str:
        kept = "".join(dict.fromkeys(flag for flag in text.lstrip("-") if flag not in _FLAGS_WITHOUT_BEARING))
        if set(kept) - set("ims"):
            raise self._refuse(f"the flag {text!r}", start)
        return kept

    def _counted(self) -> str:
        counted = re.compile(r"\{\d+(?:,\d*)?\}").match(self._pattern, self._at)
        if not counted:
            raise PatternError(f"'{{' at position {self._at} is no repetition: write {{n}}, {{n,}}, {{n,m}} or \\{{")
        self._at = counted.end()
        return counted[0]

    def _class(self) -> str:
        start = self._at
        self._at += 1
        parts = ["["]
        if self._peek("^"):
            parts.append(self._next())
        first = True
        while first or not self._peek("]"):
            if self._at >= len(self._pattern):
                raise PatternError(f"the class that begins at position {start} has no end")
            if self._peek("[") or self._peek("&&"):
                raise self._refuse("a class within a class", self._at)
            if self._peek("\\"):
                parts.append(self._escape(in_class=True))
            elif self._peek("-"):
                parts.append(self._next())
            else:
                parts.append(re.escape(self._next()))
            first = False
        return "".join(parts) + self._next()

    def _escape(self, *, in_class: bool = False) -> str:
        start = self._at
        self._at += 1
        letter = self._next()
        if letter == "Q":
            quoted = self._up_to("\\E") if "\\E" in self._pattern[self._at :] else self._rest()
            return re.escape(quoted)
        if letter in _SAME_ESCAPES and not (in_class and letter in "bBA"):
            return "\\" + letter
        if letter in "pP":
            return self._property(letter == "P", in_class)
        if letter.lower() in _PREDEFINED:
            return _characters(_PREDEFINED[letter.lower()], letter.isupper(), in_class)
        if letter in "xu0ec":
            return re.escape(self._character(letter, start))
        if not in_class and letter.isdigit():
            return "\\" + letter
        if not in_class and letter in "zZk":
            return {"z": r"\Z", "Z": r"(?=\n?\Z)"}.get(letter) or self._named_reference(start)
        if letter.isascii() and letter.isalnum():
            raise self._refuse("\\" + letter, start)
        return re.escape(letter)

    def _rest(self) -> str:
        text, self._at = self._pattern[self._at :], len(self._pattern)
        return text

    def _named_reference(self, start: int) -> str:
        if not self._peek("<"):
            raise PatternError(f"\\k at position {start} is not followed by <name>")
        self._at += 1
        return f"(?P={self._up_to('>')})"

    def _character(self, letter: str, start: int) -> str:
        """Read a character by its number, or a control character."""
        if letter == "e":
            return "\x1b"
        if letter == "c":
            return chr(ord(self._next()) ^ 64)
        form = {"x": r"\{[0-9a-fA-F]+\}|[0-9a-fA-F]{2}", "u": r"[0-9a-fA-F]{4}", "0": r"[0-3]?[0-7]{1,2}"}[letter]
        found = re.compile(form).match(self._pattern, self._at)
        if not found:
            raise PatternError(f"\\{letter} at position {start} is not followed by the number of a character")
        self._at = found.end()
        try:
            return chr(int(found[0].strip("{}"), 8 if letter == "0" else 16))
        except (ValueError, OverflowError) as error:
            raise PatternError(f"\\{letter} at position {start} names no character") from error

    def _property(self, negated: bool, in_class: bool) -> str:
        start = self._at
        if self._peek("{"):
            self._at += 1
            name = self._up_to("}")
        else:
            name = self._next()
        found = _POSIX.get(name)
        if found is None:
            category = name.removeprefix("Is")
            if not re.fullmatch("[LMNPSZC][a-z]?", category):
                raise self._refuse(f"the class {name!r}", start)
            found = "".join(each for each in _ASCII if unicodedata.category(each).startswith(category))
        return _characters(found, negated, in_class)


def _characters(found: str, negated: bool, in_class: bool) -> str:
    """Return a set of ASCII characters, as a class or as the content of one."""
    members = "".join(re.escape(each) for each in _ASCII if (each in found) != negated)
    if in_class:
        return members
    return f"[{members}]" if members else r"(?!)"

r"""Regular expressions with the same meaning in Java (Spark) and RE2 (the engine): parsed, and written for RE2.

Allowed: characters, ``.``, classes, ``\d \w \s`` and their opposites, groups, ``|``, ``^`` at the start, ``\z``, and
quantifiers, lazy ones too. Rejected is what differs: ``$`` (Java's matches before a last newline), ``\b`` and flags
(Java knows other letters than ASCII's), look-around, back-references, possessive quantifiers, classes within classes,
and groups that are captured more than once.
"""

from __future__ import annotations

from dataclasses import dataclass

MOST_REPEATED = 100
_LINE_ENDS = r"\n\r\x{85}\x{2028}\x{2029}"
"""What Java's ``.`` does not match."""
_CLASSES = {"d": "0-9", "w": "A-Za-z0-9_", "s": r"\t\n\x{0B}\f\r "}
_PLAIN = {"t": r"\t", "n": r"\n", "r": r"\r", "f": r"\f"}
_SPECIAL = "\\^$.|?*+()[]{}"


class RegexError(Exception):
    """A pattern is not allowed; the text says why, and what to write."""


@dataclass(frozen=True, slots=True)
class Regex:
    """A pattern that was read."""

    text: str
    """For RE2."""
    groups: int
    may_be_empty: bool
    """It may match the empty text."""


def read_regex(pattern: str) -> Regex:
    """Return a pattern as RE2 has it. Raises RegexError if it has something with another meaning in Java."""
    reader = _Reader(pattern)
    text, empty = reader.alternatives()
    if reader.at < len(pattern):
        raise RegexError("there is a ) without a (")
    return Regex(text, reader.groups, empty)


class _Reader:
    def __init__(self, pattern: str) -> None:
        self._pattern, self.at, self.groups = pattern, 0, 0

    def _peek(self) -> str:
        return self._pattern[self.at : self.at + 1]

    def _next(self) -> str:
        found = self._peek()
        if not found:
            raise RegexError("the pattern ends too early")
        self.at += 1
        return found

    def alternatives(self) -> tuple[str, bool]:
        """Return what is between parentheses, and whether it may match the empty text."""
        texts, empty = [], False
        while True:
            text, is_empty = self._sequence()
            texts.append(text)
            empty = empty or is_empty
            if self._peek() != "|":
                return "|".join(texts), empty
            self.at += 1

    def _sequence(self) -> tuple[str, bool]:
        parts, empty = [], True
        while self._peek() not in ("", "|", ")"):
            text, is_empty = self._repeated()
            parts.append(text)
            empty = empty and is_empty
        return "".join(parts), empty

    def _repeated(self) -> tuple[str, bool]:
        groups = self.groups
        text, empty, repeats = self._atom()
        quantifier, least = self._quantifier()
        if not quantifier:
            return text, empty
        if not repeats:
            raise RegexError(f"{quantifier} cannot follow {text}")
        if empty:
            raise RegexError(f"{quantifier} repeats what may be empty")
        if self.groups > groups:
            raise RegexError(f"{quantifier} repeats a captured group: write (?:…)")
        return text + quantifier, not least

    def _quantifier(self) -> tuple[str, int]:
        """Return ``*``, ``+``, ``?`` or ``{m,n}``, also lazy, and how often it repeats at least."""
        sign = self._peek()
        if not sign or sign not in "*+?{":
            return "", 1
        self.at += 1
        least = 1 if sign == "+" else 0
        if sign == "{":
            inside, closed, _ = self._pattern[self.at :].partition("}")
            bounds = inside.split(",")
            numbers = [each for each in bounds if each.isascii() and each.isdigit() and int(each) <= MOST_REPEATED]
            open_end = len(bounds) == 2 and bounds[1] == ""
            if (
                not closed
                or len(bounds) > 2
                or len(numbers) != len(bounds) - open_end
                or numbers != sorted(numbers, key=int)
            ):
                raise RegexError(
                    f"{{ repeats, as in {{2,5}}, at most {MOST_REPEATED} times; the character itself is \\{{"
                )
            self.at += len(inside) + 1
            sign, least = f"{{{inside}}}", int(bounds[0])
        if self._peek() == "?":
            self.at += 1
            sign += "?"
        if self._peek() and self._peek() in "*+?{":
            raise RegexError(f"{sign}{self._peek()} is not possible: RE2 has no possessive quantifiers")
        return sign, least

    def _atom(self) -> tuple[str, bool, bool]:
        """Return the next part, whether it may match the empty text, and whether it may be repeated."""
        char = self._next()
        if char == "(":
            return *self._group(), True
        if char == "[":
            return self._class(), False, True
        if char == "\\":
            return self._escape()
        if char == ".":
            return f"[^{_LINE_ENDS}]", False, True
        if char == "^":
            if self.at != 1:
                raise RegexError("^ is possible at the start; the character itself is \\^")
            return "^", True, False
        if char == "$":
            raise RegexError("$ matches before a last line break, too, in Spark: write \\z for the end of the text")
        if char in "*+?{":
            raise RegexError(f"{char} repeats nothing; the character itself is \\{char}")
        return _literal(char), False, True

    def _group(self) -> tuple[str, bool]:
        start = "("
        if self._peek() == "?":
            if not self._pattern.startswith("?:", self.at):
                raise RegexError("of groups that begin with (? only (?:…) is possible: no flags, look-around or names")
            self.at += 2
            start = "(?:"
        else:
            self.groups += 1
        text, empty = self.alternatives()
        if self._next() != ")":
            raise RegexError("a ( is not closed")
        return f"{start}{text})", empty

    def _escape(self) -> tuple[str, bool, bool]:
        char = self._next()
        if char == "z":
            return r"\z", True, False
        if char.lower() in _CLASSES:
            return f"[{'^' if char.isupper() else ''}{_CLASSES[char.lower()]}]", False, True
        return self._escaped(char), False, True

    def _escaped(self, char: str) -> str:
        if char in _PLAIN:
            return _PLAIN[char]
        if char.isascii() and not char.isalnum() and char.isprintable():
            return _literal(char)
        raise RegexError(
            f"\\{char} is not possible: there are \\d \\w \\s \\D \\W \\S \\t \\n \\r \\f \\z and \\ before signs"
        )

    def _class(self) -> str:
        negated = self._peek() == "^"
        self.at += negated
        parts: list[str] = []
        while True:
            char = self._next()
            if char == "]" and parts:
                return f"[{'^' if negated else ''}{''.join(parts)}]"
            if char in "[]^" or (char == "&" and self._peek() == "&"):
                raise RegexError(f"{char} in a class has a \\ before it: no classes within classes, no &&")
            if char == "\\" and self._peek() in _CLASSES:
                parts.append(_CLASSES[self._next()])
                continue
            parts.append(self._range(char))

    def _range(self, first: str) -> str:
        first_text = self._in_class(first)
        if self._peek() != "-" or self._pattern[self.at + 1 : self.at + 2] == "]":
            return first_text
        self.at += 1
        char = self._next()
        last = self._next() if char == "\\" else char
        if first == "\\" or char == "\\" or char in "[]&" or not first <= last or first == "-":
            raise RegexError(f"{first}-{char} is not a range of characters")
        return f"{first_text}-{_literal(last)}"

    def _in_class(self, char: str) -> str:
        if char == "\\":
            return self._escaped(self._next())
        return _literal(char)


def _literal(char: str) -> str:
    """Return a character as RE2 has it, in a class and outside."""
    return f"\\{char}" if char in _SPECIAL or char in "-&~" else char

"""The name of a table as SQL writes it: parts separated by dots, in back-ticks where they hold anything but words."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sparkonce.options import OptionError

_PART = re.compile(r"`(?P<quoted>(?:[^`]|``)+)`|(?P<plain>[A-Za-z0-9_]+)")


@dataclass(frozen=True, slots=True)
class TableName:
    """A name of one to several parts: ``table``, ``schema.table``, ``catalog.schema.table``."""

    parts: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> TableName:
        """Read a name by Spark's rules for identifiers.

        Raises:
            OptionError: if it is not a valid name, or is the path of a table (``delta.`/path```).
        """
        parts, end = [], 0
        while found := _PART.match(text, end):
            parts.append((found["quoted"] or found["plain"]).replace("``", "`"))
            end = found.end()
            if text[end : end + 1] != ".":
                break
            end += 1
        else:
            end = -1  # nothing, or nothing after a dot
        if end != len(text):
            raise OptionError(
                f"table={text!r} is not the name of a table: write [catalog.][schema.]table, and a part with other "
                "characters than letters, digits and _ in back-ticks"
            )
        name = cls(tuple(parts))
        if len(parts) > 1 and parts[0].lower() == "delta" and "/" in parts[-1]:
            raise OptionError(f"table={name} is the path of a table, not a name: use start({parts[-1]!r})")
        return name

    def __str__(self) -> str:
        """Write it for SQL, each part in back-ticks if it needs them."""
        return ".".join(
            part if re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", part) else self._quoted(part) for part in self.parts
        )

    @property
    def sql(self) -> str:
        """The name for SQL, whatever words are reserved."""
        return ".".join(map(self._quoted, self.parts))

    @staticmethod
    def _quoted(part: str) -> str:
        return "`" + part.replace("`", "``") + "`"

"""How rows and dead letters were made from a batch's records, as its commits record it (`BatchRecord.rules`).

A batch whose dead letters are written and whose rows are not is completed with the rules of its dead letters:
otherwise a record could be in both places, or in neither. The rules are a digest of options, the registry's schema with
which values were read, the schemas that the registry lacked, whose records are dead letters for good, and the rules of
the table that made dead letters of rows. As text: the digest, after a ``#`` the names of the table's rules, after an
``!`` those of schemas, after an ``@`` the schema with which values were read.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, replace

_TABLE, _UNKNOWN, _NAMES, READ_AS = "#", "!", ",", "@"


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules for rows and dead letters."""

    digest: str
    """Of the relevant options."""
    read_as: str = ""
    """The schema with which values were read; empty if it is not in a registry."""
    unknown: Set[str] = frozenset()
    """The names of schemas that the registry lacked."""
    table: Set[str] = frozenset()
    """The names of the table's rules."""

    @classmethod
    def parse(cls, text: str) -> Rules:
        """Parse a commit's record."""
        head, _, read_as = text.partition(READ_AS)
        head, _, unknown = head.partition(_UNKNOWN)
        digest, _, table = head.partition(_TABLE)
        return cls(digest, read_as, _split(unknown), _split(table))

    def __str__(self) -> str:
        named = ((_TABLE, self.table), (_UNKNOWN, self.unknown))
        lists = (mark + _NAMES.join(sorted(names)) for mark, names in named if names)
        return self.digest + "".join(lists) + (READ_AS + self.read_as if self.read_as else "")


def _split(names: str) -> Set[str]:
    return frozenset(names.split(_NAMES)) if names else frozenset()


def with_unknown(rules: str | None, names: Set[str]) -> str | None:
    """Return rules with more schemas that the registry lacked."""
    if rules is None or not names:
        return rules
    parsed = Rules.parse(rules)
    return str(replace(parsed, unknown=parsed.unknown | names))

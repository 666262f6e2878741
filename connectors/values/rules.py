"""What has made rows and dead letters of the records of a batch, as its commits note it (`BatchRecord.rules`).

A batch whose dead letters are written and whose rows are not is completed by what its dead letters were found by:
otherwise a record could be in both places, or in neither. That is a digest of options, the schema of a registry that
values were read as, and which schemas the registry did not have, whose records are dead letters for good. As text:
the digest, after an ``!`` the names of schemas, after an ``@`` what values were read as.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, replace

_UNKNOWN, _NAMES, READ_AS = "!", ",", "@"


@dataclass(frozen=True, slots=True)
class Rules:
    """What has made rows and dead letters of records."""

    digest: str
    """Of the options that decide."""
    read_as: str = ""
    """What values were read as; empty if no registry has it."""
    unknown: Set[str] = frozenset()
    """The names of schemas that the registry did not have."""

    @classmethod
    def parse(cls, text: str) -> Rules:
        """Return what a commit has noted."""
        head, _, read_as = text.partition(READ_AS)
        digest, _, names = head.partition(_UNKNOWN)
        return cls(digest, read_as, frozenset(names.split(_NAMES)) if names else frozenset())

    def __str__(self) -> str:
        names = _UNKNOWN + _NAMES.join(sorted(self.unknown)) if self.unknown else ""
        return self.digest + names + (READ_AS + self.read_as if self.read_as else "")


def with_unknown(rules: str | None, names: Set[str]) -> str | None:
    """Return rules with more schemas that the registry did not have."""
    if rules is None or not names:
        return rules
    parsed = Rules.parse(rules)
    return str(replace(parsed, unknown=parsed.unknown | names))

"""Whether a commit that was decided at one version may still be made after others have landed. Pure and total.

Delta lets a writer that lost a version try the next one, if what it read has not changed ("Conflict resolution" of
delta-spark, `ConflictChecker`). `judge` looks at one commit in between, and takes the first that applies:

1. it has another protocol, or other metadata: the rows may no longer fit: `TableChanged`;
2. it is a RESTORE: it took rows out, and may have taken out what the decision was based on: `TableRestored`;
3. it wrote a transaction identifier that this commit writes or was decided from: `TransactionMoved`;
4. it added or removed a file, also without a change of rows, and this commit replaces all files: `FilesChanged`;
5. it wrote a domain that this commit writes or was decided from, other than that of row ids: `DomainChanged`;
6. else nothing: the commit may follow it.

Row ids and in-commit timestamps are no conflict: both are made anew from the state that the commit will follow
(`proposal.Proposal.actions`).

This is nowhere laxer than delta-spark's checker. It is stricter in 1, which lets added features and metadata that is
the same pass, in 2, in 4, where the isolation level WriteSerializable ignores blind appends, and in 5 for clustering.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

from sparkonce.offset_store.log.actions import Actions
from sparkonce.offset_store.log.state import RESTORE, ROW_TRACKING_DOMAIN


@dataclass(frozen=True, slots=True)
class Touched:
    """What a commit depends on and changes."""

    transactions: Set[str]
    """The identifiers that it was decided from, those that it writes among them."""
    domains: Set[str] = frozenset()
    replaces: bool = False
    """Whether it removes every file of the table."""


@dataclass(frozen=True, slots=True)
class TableChanged:
    """The protocol or the metadata changed."""

    version: int
    what: str

    def __str__(self) -> str:
        return f"version {self.version} changed the table's {self.what}"


@dataclass(frozen=True, slots=True)
class TableRestored:
    """The table was restored to an older version."""

    version: int

    def __str__(self) -> str:
        return f"version {self.version} restored the table"


@dataclass(frozen=True, slots=True)
class TransactionMoved:
    """Another commit wrote a transaction identifier of this one."""

    version: int
    txn_id: str
    to: object
    """As the commit has it, which may be no number."""

    def __str__(self) -> str:
        return f"version {self.version} moved the transaction identifier {self.txn_id} to {self.to}"


@dataclass(frozen=True, slots=True)
class FilesChanged:
    """Another commit added or removed files of a table that is to be replaced."""

    version: int

    def __str__(self) -> str:
        return f"version {self.version} changed the files that are to be replaced"


@dataclass(frozen=True, slots=True)
class DomainChanged:
    """Another commit wrote a domain of this one."""

    version: int
    domain: str

    def __str__(self) -> str:
        return f"version {self.version} wrote the domain {self.domain}"


Conflict = TableChanged | TableRestored | TransactionMoved | FilesChanged | DomainChanged


def judge(touched: Touched, version: int, landed: Actions) -> Conflict | None:
    """Return why a commit must not follow one that landed as ``version``, or None; see the module's docstring."""
    for kind, what in (("protocol", "protocol"), ("metaData", "metadata")):
        if landed[kind]:
            return TableChanged(version, what)
    if any(info.get("operation") == RESTORE for info in landed["commitInfo"]):
        return TableRestored(version)
    for txn in landed["txn"]:
        txn_id = str(txn.get("appId"))
        if txn_id in touched.transactions:
            return TransactionMoved(version, txn_id, txn.get("version"))
    if touched.replaces and (landed["add"] or landed["remove"]):
        return FilesChanged(version)
    domains = {str(each.get("domain")) for each in landed["domainMetadata"]} - {ROW_TRACKING_DOMAIN}
    for domain in sorted(domains & touched.domains):
        return DomainChanged(version, domain)
    return None

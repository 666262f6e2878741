"""Records that a reader should not have seen, and transactions seen only in part."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from lab.history.anomalies import Anomaly, AnomalyName, named, unique
from lab.history.events import Event, Isolation
from lab.history.model import Fate, History, Passed, Reader, Transaction, Write


def aborted_reads(history: History) -> Iterator[Anomaly]:
    """Find values of aborted transactions and of failed sends that were read, one finding for each value."""
    for write in history.writes.values():
        sightings = history.sightings_of(write)
        shown: list[Event | None] = [*write.events]
        if write.certainly_failed:
            why = "its send failed"
        elif write.aborted:
            assert write.transaction is not None
            sightings = [each for each in sightings if each.isolation is Isolation.READ_COMMITTED]
            end = write.transaction.end
            why = f"{write.transaction} was {'never committed' if end is None else 'aborted'}"
            shown += [write.transaction.begin, end]
        else:
            continue
        if sightings:
            seen = [each.event for each in sightings]
            explanation = f"{write} of {write.topic} was read by {named(seen)}, although {why}"
            yield Anomaly(AnomalyName.ABORTED_READ, explanation, unique(*shown, *seen))


def torn_transactions(history: History, passed: Iterable[Passed]) -> tuple[list[Anomaly], set[Write | None]]:
    """Find transactions of which `read_committed` readers saw a part and read past another.

    A transaction's records become visible together, and a `read_committed` reader cannot read past a record whose
    transaction is undecided (KIP-98). So a record that such a reader missed is torn off if it saw another part, or if
    nobody saw the missing part while somebody saw another. A reader that missed what others saw entirely skipped it:
    that is another anomaly.

    Returns:
        the findings, and the writes that they explain.
    """
    missed: dict[Transaction, list[tuple[Write, Passed]]] = defaultdict(list)
    for each in passed:
        write = each.record.write
        if each.reader.isolation is Isolation.READ_COMMITTED and write is not None and write.transaction is not None:
            missed[write.transaction].append((write, each))
    anomalies: list[Anomaly] = []
    explained: set[Write | None] = set()
    for transaction, those in missed.items():
        torn = _torn_off(history, transaction, those) if transaction.fate is not Fate.ABORTED else []
        if torn:
            anomalies.append(_torn(history, transaction, torn))
            explained.update(write for write, _ in torn)
    return anomalies, explained


def _torn_off(
    history: History, transaction: Transaction, missed: list[tuple[Write, Passed]]
) -> list[tuple[Write, Passed]]:
    seen_by: dict[Write, set[Reader]] = {
        write: {each.reader for each in history.sightings_of(write) if each.isolation is Isolation.READ_COMMITTED}
        for write in transaction.writes
    }
    saw_a_part = set().union(*seen_by.values())
    return [
        (write, each)
        for write, each in missed
        if not write.certainly_failed and (each.reader in saw_a_part or (saw_a_part and not seen_by[write]))
    ]


def _torn(history: History, transaction: Transaction, torn: list[tuple[Write, Passed]]) -> Anomaly:
    lacking = dict.fromkeys(write for write, _ in torn)
    readers = ", ".join(sorted({str(each.reader) for _, each in torn}))
    explanation = (
        f"{len(lacking)} of the {len(transaction.writes)} records of {transaction} were passed over by {readers}, "
        "although another one was read"
    )
    unseen = sum(not history.sightings_of(write) for write in lacking)
    if unseen:
        explanation += f"; {unseen} of them were seen by nobody"
    missing = [event for write, each in torn for event in (*write.events, *each.jump)]
    seen = [each.event for write in transaction.writes for each in history.sightings_of(write)[:1]]
    return Anomaly(
        AnomalyName.TORN_TRANSACTION, explanation, unique(transaction.begin, transaction.end, *missing, *seen)
    )

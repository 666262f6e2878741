"""The kinds of our commits besides batches, recognized by the commit info and the written transaction ids.

Delta's own name for most of them is WRITE, as for any writer. So audit and `sparkonce offsets` use these names. A
commit without our records keeps Delta's name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any

from sparkonce.offset_store.record import COMMIT_INFO_KEY
from sparkonce.offset_store.txn_ids import IntentTxn, MergeTxn, parse_txn_id

INTENT_INFO_KEY = "sparkonceIntent"
"""The field of the commit info that records a write of delta-spark before it runs."""
SEQUENCE_KEY = "sequence"
"""The number of such a write, in the record of an intent and of a confirmation."""
TAKE_OVER_INFO_KEY = "sparkonceTakeOver"
"""The field of the commit info of the last commit of `delta_once` before delta-spark writes: the application."""
BATCH_INFO_KEY = "sparkonceWrite"
"""The field of the commit info of a batch write (``df.write``): its attempt, number of rows and idempotency key."""
IDEMPOTENCY_KEY = "idempotencyKey"
"""The field of that object with the key."""
COMPACTION_INFO_KEY = "sparkonceCompaction"
"""The field of the commit info of all commits of `sparkonce compact`."""
CLAIMED_UNTIL_KEY = "claimedUntil"
"""In that field: until when the table is claimed, in ms since 1970."""


class OwnCommit(Enum):
    """A kind of commit, as reports name it."""

    WRITE_INTENT = "write intent"
    NUMBERED_WRITE = "numbered write"
    """In a result that delta-spark writes."""
    WRITE_CONFIRMATION = "write confirmation"
    TAKE_OVER = "offsets moved to another table"
    """In a result that delta-spark writes from then on."""
    BATCH_WRITE = "batch write"
    """Of rows without offsets, by ``df.write``."""
    COMPACTION = "compaction"
    COMPACTION_CLAIM = "compaction claim"
    OFFSETS_SET = "offsets set by hand"
    OFFSETS_REWOUND = "offsets rewound by hand"
    OFFSETS_RESTORED = "rows and offsets restored by hand"
    OFFSETS_COPIED = "offsets copied by hand"


_BY_HAND = {
    "set": OwnCommit.OFFSETS_SET,
    "rewind": OwnCommit.OFFSETS_REWOUND,
    "restore": OwnCommit.OFFSETS_RESTORED,
    "copy": OwnCommit.OFFSETS_COPIED,
}


def own_commit(info: Mapping[str, Any], txn_ids: Iterable[str]) -> OwnCommit | None:
    """Return the kind of our commit from its ``commitInfo``; None for commits of batches only, and of others."""
    compaction, record = info.get(COMPACTION_INFO_KEY), info.get(COMMIT_INFO_KEY)
    if isinstance(info.get(INTENT_INFO_KEY), Mapping):
        return OwnCommit.WRITE_INTENT
    if isinstance(info.get(TAKE_OVER_INFO_KEY), Mapping):
        return OwnCommit.TAKE_OVER
    if isinstance(info.get(BATCH_INFO_KEY), Mapping):
        return OwnCommit.BATCH_WRITE
    if isinstance(compaction, Mapping):
        return OwnCommit.COMPACTION_CLAIM if CLAIMED_UNTIL_KEY in compaction else OwnCommit.COMPACTION
    if isinstance(record, Mapping):
        if SEQUENCE_KEY in record:
            return OwnCommit.WRITE_CONFIRMATION
        return _BY_HAND.get(str(record.get("kind")))
    kinds = {type(parse_txn_id(txn_id)) for txn_id in txn_ids}
    if MergeTxn in kinds:
        # All of its offsets may have been moved manually meanwhile: then only its number is confirmed, with no record.
        return OwnCommit.WRITE_CONFIRMATION if IntentTxn in kinds else OwnCommit.NUMBERED_WRITE
    return None


def idempotency_key(info: Mapping[str, Any]) -> str | None:
    """Return the key of a batch write from its ``commitInfo``; None for other commits, and for writes without one."""
    written = info.get(BATCH_INFO_KEY)
    key = written.get(IDEMPOTENCY_KEY) if isinstance(written, Mapping) else None
    return key if isinstance(key, str) else None

"""Bugs that are put into the product, each of which some seed must find.

Each takes one rule away that a writer of the log keeps. ``wants`` names what the seeds are made to have, where few have
it by themselves. Half are found by one of the first ten seeds, the others by one of a few hundred.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

from lab.log.run import replaced
from lab.log.store import SimulatedStorage
from sparkonce.exactly_once import commit
from sparkonce.offset_store.log import checkpoints, cleanup, table_log, verdict
from sparkonce.offset_store.log.proposal import Proposal
from sparkonce.offset_store.log.reader import commit_file
from sparkonce.offset_store.log.table_log import TableLog
from sparkonce.offset_store.log.verdict import Conflict, FilesChanged, TableChanged, TableRestored, TransactionMoved

_judge, _adds, _info, _take = verdict.judge, Proposal._adds, Proposal._info, checkpoints._Made._take


@dataclass(frozen=True, slots=True)
class Plant:
    """One bug."""

    what: str
    patches: tuple[tuple[Any, str, Any], ...]
    wants: frozenset[str] = frozenset()

    @contextmanager
    def planted(self) -> Iterator[None]:
        """Put it in."""
        with ExitStack() as stack:
            for owner, name, value in self.patches:
                stack.enter_context(replaced(owner, name, value))
            yield


def _blind_to(kind: type[Conflict], what: str = "") -> tuple[tuple[Any, str, Any], ...]:
    def judge(*of: Any) -> Conflict | None:
        found = _judge(*of)
        is_it = isinstance(found, kind) and (not isinstance(found, TableChanged) or found.what == what)
        return None if is_it else found

    return ((table_log, "judge", judge),)


def _adds_of_first_try(proposal: Any, state: Any) -> Any:
    key = id(proposal)
    if _tried.get(key, (None,))[0] is not proposal:
        _tried.clear()
        _tried[key] = proposal, _adds(proposal, state)
    return _tried[key][1]


_tried: dict[int, Any] = {}


def _adds_alone(proposal: Any, state: Any) -> Any:
    return [each for each in _adds(proposal, state) if each[0] == "add"]


def _adds_of_version_before(proposal: Any, state: Any) -> Any:
    before = {"defaultRowCommitVersion": state.version}
    return [(kind, {**each, **before} if kind == "add" else each) for kind, each in _adds(proposal, state)]


def _info_without_time_before(proposal: Any, state: Any, *rest: Any) -> Any:
    return _info(proposal, replace(state, timestamp_ms=None), *rest)


def _put_taking_412_for_a_loss(log: Any, version: int, data: bytes, attempt_id: str) -> bool:
    try:
        return bool(log.reader.storage.put_if_absent(commit_file(version), data))
    except OSError:
        if log._is_ours(version, attempt_id):
            return True
        raise


def _put_taking_errors_for_a_loss(log: Any, version: int, data: bytes, attempt_id: str) -> bool:
    try:
        return bool(log.reader.storage.put_if_absent(commit_file(version), data) or log._is_ours(version, attempt_id))
    except OSError:
        return False


def _keep_with_tag_after(log: Any, state: Any, tag: Any) -> Any:  # noqa: ARG001
    log._state, log._tag = state, log.reader.storage.tag(commit_file(state.version))
    return state


def _taking_all_but(kind: str, of: str) -> tuple[tuple[Any, str, Any], ...]:
    def take(made: Any, each: str, actions: Any) -> None:
        _take(made, each, [one for one in actions if each != kind or of not in str(one)])

    return (checkpoints._Made, "_take", take), (checkpoints, "_compare", lambda *_: checkpoints._Found(1, 1))


def _nothing(*_: Any) -> None:
    return


_CHECKPOINTS, _DROP = frozenset({"checkpoints"}), frozenset({"drop"})
_HALVES = frozenset({"at-least-once", "others"})
PLANTED = {
    "txn-ignored": Plant("a transaction identifier that moved is no conflict", _blind_to(TransactionMoved)),
    "metadata-ignored": Plant("a changed schema is no conflict", _blind_to(TableChanged, "metadata")),
    "protocol-ignored": Plant("a changed protocol is no conflict", _blind_to(TableChanged, "protocol")),
    "restore-ignored": Plant("a RESTORE is no conflict", _blind_to(TableRestored), _HALVES),
    "adds-ignored": Plant("a replacement follows appends", _blind_to(FilesChanged)),
    "row-ids-not-remade": Plant("row ids are those of the first try", ((Proposal, "_adds", _adds_of_first_try),)),
    "high-water-mark-not-moved": Plant("row ids without their domain", ((Proposal, "_adds", _adds_alone),)),
    "row-version-before": Plant("rows are of the version before", ((Proposal, "_adds", _adds_of_version_before),)),
    "timestamp-not-raised": Plant("a clock that is behind", ((Proposal, "_info", _info_without_time_before),)),
    "put-over": Plant(
        "a commit replaces another",
        ((SimulatedStorage, "put_if_absent", lambda self, name, data: self._put(name, data, over=True)),),
    ),
    "412-is-a-loss": Plant("a file that is there is not ours", ((TableLog, "_put", _put_taking_412_for_a_loss),)),
    "error-is-a-loss": Plant("what failed has not landed", ((TableLog, "_put", _put_taking_errors_for_a_loss),)),
    "kept-not-checked": Plant(
        "a table that was replaced is not noticed", ((TableLog, "_is_kept", lambda _: True),), _DROP
    ),
    "tag-after-reading": Plant(
        "nor one that was while it was read", ((TableLog, "_keep", _keep_with_tag_after),), _DROP
    ),
    "pause-not-noticed": Plant(
        "a commit into the past has landed", ((TableLog, "_check_in_force", _nothing),), _CHECKPOINTS
    ),
    "first-half-not-checked": Plant(
        "the first of two commits may be undone", ((commit, "_check_first_half", _nothing),), _HALVES | {"by-hand"}
    ),
    "checkpoint-without-txn": Plant("a checkpoint drops a batch", _taking_all_but("txn", "/query/"), _CHECKPOINTS),
    "checkpoint-without-domain": Plant("and row ids", _taking_all_but("domainMetadata", ""), _CHECKPOINTS),
    "cleaned-too-much": Plant(
        "all expired commits go",
        (
            (cleanup, "_base", lambda _names, state, expired: min(expired, state.version) if expired > 0 else None),
            (cleanup, "_check", _nothing),
        ),
        _CHECKPOINTS,
    ),
}

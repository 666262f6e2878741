"""Collects the state after a cell's last run, the verdict, a second opinion, and when each batch was committed.

Topics, transactions and groups are read while the broker still serves, which may be the cell's own; the table is
read for the verdict.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from lab.verify import features
from lab.verify.cells import BY_DELTA_SPARK, Moment, Result
from lab.verify.judge import Verdict, judge, judge_copies, judge_dead_letters, read_database, read_rows, together
from lab.verify.pipelines import Locations, Pipeline
from lab.verify.records import Delivered, TopicRecord, read_delivered, read_topic, topic_index
from lab.verify.transactions import held_up, lags, open_transactions
from sparkonce.exactly_once.audit import Auditor, Scope
from sparkonce.offset_store.commit_log import CommitLog
from sparkonce.offset_store.locations import Location

OFFSETS_FOLDER = "_sparkonce"
"""The offset table inside the folder of a table that delta-spark writes."""
TOGETHER_S = 0.1
"""Records sent within this time of each other are one event."""
_FIELD = "sparkonce"
_INTENT_FIELD = "sparkonceIntent"


@dataclass(frozen=True, slots=True)
class Evidence:
    """The broker's state."""

    in_topic: tuple[TopicRecord, ...] = ()
    delivered: tuple[Delivered, ...] = ()
    """The records that the pipeline has sent to a topic, if it sends."""
    left_behind: tuple[str, ...] = ()
    """Leftovers that must not exist, in words: open transactions, and committed offsets that are not the ends."""

    def without(self, removed: Set[tuple[bytes, bytes]]) -> Evidence:
        """Return it without records whose rows were deleted."""
        return replace(self, in_topic=tuple(each for each in self.in_topic if (each.key, each.value) not in removed))


def gather(pipeline: Pipeline) -> Evidence:
    """Read the broker's state.

    Raises:
        LoadError: if it returns an error.
    """
    servers, output = pipeline.bootstrap_servers, pipeline.output_topic
    in_topic = tuple(record for topic in pipeline.subscribed for record in read_topic(servers, topic))
    if output is None:
        return Evidence(in_topic)
    unfinished = [each for _, app_id in pipeline.tables for each in open_transactions(servers, app_id)]
    left = [f"transaction left behind: {each}" for each in unfinished]
    left += [f"readers are held up: {each}" for each in held_up(servers, [output])]
    if Result(pipeline.result) is Result.TOPIC:
        left += [f"group {pipeline.app_id} lags: {each}" for each in lags(servers, pipeline.app_id, pipeline.topic)]
    return Evidence(in_topic, tuple(read_delivered(servers, output)), tuple(left))


def verdict(pipeline: Pipeline, acknowledged: Sequence[tuple[bytes, bytes]], evidence: Evidence) -> Verdict:
    """Compare the results with the acknowledged records.

    Raises:
        DeltaError, OSError, sqlite3.Error: if the table cannot be read.
    """
    result = Result(pipeline.result)
    if result is Result.TOPIC:
        return judge_copies(acknowledged, evidence.in_topic, evidence.delivered)
    if result is Result.FOREACH_BATCH:
        return judge(acknowledged, evidence.in_topic, read_database(pipeline.database))
    if pipeline.features:
        return judge(acknowledged, evidence.in_topic, features.rows(pipeline))
    return together(_of_table(pipeline, index, acknowledged, evidence) for index in range(pipeline.topics))


def _of_table(
    pipeline: Pipeline, index: int, acknowledged: Sequence[tuple[bytes, bytes]], evidence: Evidence
) -> Verdict:
    """Compare the table of a topic with what was acknowledged for this topic."""
    result, table = Result(pipeline.result), pipeline.tables[index][0]
    rows = read_rows(table, result is Result.MERGE, pipeline.storage_options)

    def is_of(key: bytes) -> bool:
        return pipeline.topics == 1 or topic_index(key) == index  # one topic may have any number of records

    sent = [each for each in acknowledged if is_of(each[0])]
    in_topic = [each for each in evidence.in_topic if is_of(each.key)]
    if result is Result.DEAD_LETTERS:
        letters = [each for each in evidence.delivered if each.key is None or is_of(each.key)]
        return judge_dead_letters(sent, in_topic, rows, letters, pipeline.subscribed[index])
    return judge(sent, in_topic, rows)


def broken_chain(place: Locations, result: Result) -> str | None:
    """Return what the audit of a table's log finds wrong with its chain of offsets; None if nothing or no table.

    A second opinion: `verdict` checks rows, and nothing that our code records; this checks the commits, and no
    rows. The chain has no gap and no overlap, whatever the guarantee.

    Raises:
        OffsetStoreError: if the table cannot be read.
    """
    if result in (Result.TOPIC, Result.FOREACH_BATCH):  # no Delta table
        return None
    for table, app_id in place.tables:
        audited = f"{table}/{OFFSETS_FOLDER}" if result in BY_DELTA_SPARK else table
        log = CommitLog.open(Location.parse(audited), place.storage_options)
        auditor = Auditor(Scope(app_id), log.oldest_state())
        for commit in log.commits():
            auditor.add(commit)
        report = auditor.finish(log.stored)
        if not report.proven:
            return f"the audit found: {report.first_bad.message if report.first_bad else 'a broken chain'}"
        if not report.chains:
            return f"the audit found no offsets of {app_id}"
    return None


def commits(place: Locations, began_wall_s: float) -> list[Moment]:
    """Return an event for each commit of the pipeline; none if the table cannot be read."""
    moments = []
    tables = [folder for table, _ in place.tables for folder in (table, f"{table}/{OFFSETS_FOLDER}")]
    for entry in [entry for table in tables for entry in _history(table, place.storage_options)]:
        what = _what(entry)
        if what is not None:
            moments.append(Moment(max(entry["timestamp"] / 1000 - began_wall_s, 0.0), "commit", what))
    return moments


def sendings(delivered: Sequence[Delivered], began_wall_s: float) -> list[Moment]:
    """Return an event for each group of committed records that were sent together."""
    groups: list[list[float]] = []
    for at_s in sorted(each.at_ms / 1000 for each in delivered):
        if groups and at_s - groups[-1][-1] < TOGETHER_S:
            groups[-1].append(at_s)
        else:
            groups.append([at_s])
    return [Moment(max(each[0] - began_wall_s, 0.0), "commit", f"{len(each)} rows are sent") for each in groups]


def _history(table: str, storage_options: Mapping[str, str]) -> list[dict[str, Any]]:
    try:
        return DeltaTable(table, storage_options=dict(storage_options) or None).history()
    except (TableNotFoundError, DeltaError, OSError):
        return []


def _what(entry: Mapping[str, Any]) -> str | None:
    """Return the contents of a commit of ours; None for others."""
    if isinstance(entry.get(_INTENT_FIELD), dict):
        return f"intent to write batch {entry[_INTENT_FIELD].get('batchId', '?')}"
    info = entry.get(_FIELD)
    with contextlib.suppress(ValueError, TypeError, AttributeError):
        info = info or json.loads(entry["userMetadata"]).get(_FIELD) if "userMetadata" in entry else info
    if not isinstance(info, dict):
        return None
    return f"{' and '.join(info.get('writes', ['?']))} of batch {info.get('batchId', '?')}"

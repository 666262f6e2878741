"""The output of `sparkonce offsets show`, as text and as JSON."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import groupby
from typing import Any

from sparkonce.exactly_once.recovery import (
    Missed,
    describe,
    describe_outdated,
    describe_unconfirmed,
    missed_by_restore,
    plain_restores,
)
from sparkonce.jobs.cli.housekeeping.brokers import BrokerView
from sparkonce.jobs.shared.arguments import show_columns, show_time
from sparkonce.offset_store.administration import NOTHING_KEPT, CommitEntry, OffsetsTable, Stored
from sparkonce.offset_store.errors import OffsetStoreError
from sparkonce.offset_store.offsets import TopicPartition, lag
from sparkonce.offset_store.txn_ids import offset_txn_id, query_txn_id

ID_SHOWN = 8
"""Characters of a query's id where it is named again."""
_QUERY_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def as_text(document: Mapping[str, Any]) -> list[str]:
    """Return the lines for people, which fit into 80 columns unless a name is long."""
    lines = []
    for application in document["applications"]:
        lines.append(f"appId {application['appId']}")
        for (source, topic, topic_id), offsets in groupby(application["offsets"], _log_of):
            lines.append(
                f"  topic {topic or '?'}, {f'id {topic_id}' if topic_id else 'without an id'}, source {source}"
            )
            lines.append(show_columns(_offset_rows(list(offsets)), "    "))
        for query in application["queries"]:
            last = "none kept" if query["lastBatch"] == NOTHING_KEPT else query["lastBatch"]
            lines.append(f"  query {query['queryId']}: last batch {last}, {_version(query)}")
        moves = {each["movedInVersion"]: each for each in [*application["offsets"], *application["queries"]]}
        lines += [f"  {_version(each)}: {_move(each)}" for each in _newest_first(moves)]
    return lines + [f"WARNING {warning}" for warning in document["warnings"]]


def _log_of(each: Mapping[str, Any]) -> tuple[str, str, str]:
    return each["source"], each["topic"], each["topicId"]


def _newest_first(moves: Mapping[int | None, Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [moves[version] for version in sorted((each for each in moves if each is not None), reverse=True)]


def _version(each: Mapping[str, Any]) -> str:
    return "a version that is no longer kept" if each["movedInVersion"] is None else f"version {each['movedInVersion']}"


def _move(each: Mapping[str, Any]) -> str:
    by = _QUERY_ID.sub(lambda found: f"{found[0][:ID_SHOWN]}…", each["movedBy"])
    return ", ".join(filter(None, [show_time(each["movedAtMs"]), by]))


def as_document(opened: OffsetsTable, stored: Stored, view: BrokerView | None) -> dict[str, Any]:
    """Return what `sparkonce offsets set --from-json` takes, of ``stored`` offsets; lag needs a ``view``."""
    last = opened.last_moved()
    applications: dict[str, dict[str, Any]] = {}

    def application(app_id: str) -> dict[str, Any]:
        return applications.setdefault(app_id, {"appId": app_id, "offsets": [], "queries": []})

    for key, offset in sorted(stored.offsets.items()):
        tp = key.partition
        txn_id = offset_txn_id(key.app_id, key.source, tp)
        name = tp.topic or (view.name_of(tp.topic_id) if view else None) or ""
        entry = {
            "source": key.source,
            "topic": name,
            "topicId": tp.topic_id,
            "partition": tp.partition,
            "nextOffset": offset,
            **_moved(last.get(txn_id)),
        }
        application(key.app_id)["offsets"].append(entry | _broker_columns(view, tp, offset))
    for query, batch_id in sorted(stored.batches.items()):
        txn_id = query_txn_id(query.app_id, query.query_id)
        application(query.app_id)["queries"].append(
            {"queryId": query.query_id, "lastBatch": batch_id, **_moved(last.get(txn_id)), **_counts(last.get(txn_id))}
        )
    warnings = [describe_unconfirmed(*each) for each in sorted(stored.unconfirmed.items())]
    warnings += [describe_outdated(*each) for each in sorted(stored.outdated.items())]
    warnings += [_warning(opened, missed) for missed in _missed(opened, applications)]
    return {
        "table": str(opened.location),
        "version": opened.version,
        "applications": [applications[app_id] for app_id in sorted(applications)],
        "warnings": warnings + _broker_warnings(applications),
    }


def _moved(entry: CommitEntry | None) -> dict[str, Any]:
    if entry is None:
        return {"movedInVersion": None, "movedAtMs": None, "movedBy": None}
    by = entry.name
    if entry.batch is not None:
        by = f"batch {entry.batch.record.batch_id} of query {entry.batch.record.query_id}"
    elif entry.change is not None:
        by = f"{entry.change.kind.value} by hand"
    return {"movedInVersion": entry.version, "movedAtMs": entry.timestamp_ms, "movedBy": by}


def _counts(entry: CommitEntry | None) -> dict[str, Any]:
    """Return how much the last batch has read and written, if its commit records that."""
    counts = None if entry is None or entry.batch is None else entry.batch.record.counts
    return {} if counts is None else {"counts": counts.to_document()}


def _broker_columns(view: BrokerView | None, tp: TopicPartition, offset: int) -> dict[str, Any]:
    if view is None:
        return {}
    log = view.log_of(tp)
    if log is None:
        return {"state": view.state_of(tp)}
    return {"state": "there", "logStart": log.start, "logEnd": log.end, "lag": lag(offset, log.end)}


def _broker_warnings(applications: Mapping[str, dict[str, Any]]) -> list[str]:
    found = []
    for app_id, application in sorted(applications.items()):
        for each in application["offsets"]:
            where = f"{each['topic']}-{each['partition']} (appId {app_id}, topic id {each['topicId'] or '-'})"
            if each.get("state") == "recreated":
                found.append(f"{where}: the topic was deleted and created again; these offsets belong to the old one")
            elif each.get("lag", 0) < 0:
                found.append(
                    f"{where}: the log ends at {each['logEnd']}, before the stored offset {each['nextOffset']}"
                )
            elif each.get("logStart", 0) > each["nextOffset"]:
                found.append(
                    f"{where}: records [{each['nextOffset']}, {each['logStart']}) are gone from the topic, unread"
                )
    return found


def _missed(opened: OffsetsTable, applications: Mapping[str, object]) -> list[Missed]:
    found = []
    for app_id in sorted(applications):
        for restore in plain_restores(opened.entries(), app_id):
            assert restore.restored_to is not None
            try:
                before, then = opened.stored(restore.version - 1), opened.stored(restore.restored_to)
            except OffsetStoreError:  # too old for a comparison
                continue
            found += missed_by_restore(restore, before.of(app_id), then.of(app_id), opened.entries())
    return found


def _warning(opened: OffsetsTable, missed: Missed) -> str:
    return (
        f"version {missed.restore_version} put the rows back to version {missed.restored_to} with RESTORE, which "
        f"leaves offsets where they are: the rows of records [{missed.start}, {missed.end}) of "
        f"{describe(missed.key)} are gone, and no query will read them again. To read them again: "
        f"sparkonce offsets rewind {opened.location} --to-version {missed.restored_to} --restore"
    )


def _offset_rows(offsets: list[dict[str, Any]]) -> list[list[object]]:
    with_broker = "state" in offsets[0]
    head = ["partition", "next offset", *(["log start", "log end", "lag"] if with_broker else []), "moved in"]
    rows: list[list[object]] = [[*head]]
    for each in offsets:
        row = [each["partition"], each["nextOffset"]]
        if with_broker and each["state"] == "there":
            row += [each["logStart"], each["logEnd"], each["lag"]]
        elif with_broker:
            row += ["-", "-", f"topic {each['state']}"]
        rows.append([*row, "no longer kept" if each["movedInVersion"] is None else _version(each)])
    return rows

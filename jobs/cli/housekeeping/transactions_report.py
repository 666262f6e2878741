"""The output of `sparkonce transactions list`, as text and as JSON."""

from __future__ import annotations

import shlex
from typing import Any

from sparkonce.connectors.kafka_sink.transactions import Partition
from sparkonce.connectors.kafka_sink.unfinished import HANGING
from sparkonce.exactly_once.transactions import Decision, Fate, Settlement, ranges_text
from sparkonce.jobs.cli.housekeeping.open_transactions import Application, OpenTransaction, Picture, Why
from sparkonce.jobs.shared.arguments import show_columns, show_time
from sparkonce.offset_store.record import Writes
from sparkonce.words import counted

MAX_PARTITIONS_SHOWN = 5
MAX_FATES_SHOWN = 20

_HEAD = ["transactional id", "state", "producer id", "epoch", "age", "time left", "holds back", "why"]


def as_text(picture: Picture, decision_topic: str, app_id: str | None, now_ms: int) -> list[str]:
    """Return the lines for people."""
    lines = []
    if not picture.topic_exists:
        lines.append(
            f"topic {decision_topic} does not exist: nothing was decided there. If the query has the option "
            "decisionTopic, name that topic with --decision-topic"
        )
    if not picture.applications:
        lines.append(f"no open transaction and no decision{f' of appId {app_id}' if app_id else ' of sparkonce'}")
    for application in picture.applications:
        lines += [f"appId {application.app_id}", *_decision_lines(application), *_open_lines(application, now_ms)]
    if picture.others:
        lines.append(f"{counted(picture.others, 'more open transaction')} of other applications")
    return lines


def as_json(picture: Picture, decision_topic: str, now_ms: int) -> dict[str, Any]:
    """Return the document for programs; times in milliseconds, moments since 1970."""
    return {
        "decisionTopic": decision_topic,
        "decisionTopicExists": picture.topic_exists,
        "atMs": now_ms,
        "applications": [
            {
                "appId": each.app_id,
                "open": [_open_json(each, one, now_ms) for one in each.open],
                "lastDecision": _decision_json(each),
            }
            for each in picture.applications
        ],
        "otherOpenTransactions": picture.others,
    }


def batch_text(decision: Decision) -> str:
    """Name the batch of a decision."""
    return f"batch {decision.record.batch_id} of query {decision.record.query_id}"


def size_text(decision: Decision) -> str:
    """Describe the size of a decision."""
    if not decision.transactions:
        return "no transactions of tasks"
    return f"{counted(decision.rows, 'row')} in {counted(len(decision.transactions), 'transaction')}"


def show_duration(ms: int) -> str:
    """Format a duration, in seconds at the finest."""
    seconds = ms // 1000
    if seconds < 60:
        return f"{seconds} s"
    minutes, seconds = divmod(seconds, 60)
    if minutes < 60:
        return f"{minutes} min {seconds} s"
    return f"{minutes // 60} h {minutes % 60} min"


def loss_text(app_id: str, decision: Decision, application: Application) -> str:
    """Describe what is wrong with a decision that cannot be finished, and the remedy."""
    bad = [each for each, fate in application.fates.items() if fate in (Fate.GONE, Fate.UNKNOWN)]
    share = (
        f"{sum(each.rows for each in bad)} of the {counted(decision.rows, 'row')} of {batch_text(decision)} (records "
        f"{ranges_text(decision.record)})"
    )
    if application.settlement is Settlement.UNDO:
        return (
            f"{share} are in transactions that were aborted after they were decided; nothing of the batch is visible. "
            f"The next start of the query, or sparkonce transactions finish --app-id {shlex.quote(app_id)}, takes the "
            "decision back, and the batch is written again"
        )
    if application.settlement is Settlement.UNKNOWN:
        return (
            f"{share} are in transactions that Kafka no longer knows, so whether they were committed is unknown. "
            f"If the topic __transaction_state was lost, they may stay open for ever, and {HANGING}. "
            f"Look into the output; sparkonce transactions finish --app-id {shlex.quote(app_id)} --accept goes on"
        )
    return (
        f"{share} are lost: their transactions were aborted after they were decided, and the other rows are visible. "
        f"sparkonce transactions finish --app-id {shlex.quote(app_id)} --accept continues without them"
    )


def _decision_lines(application: Application) -> list[str]:
    last = application.decisions.last
    if last is None:
        return ["  nothing was decided yet"]
    if last.undone:
        return [
            f"  last decision {last.number}: takes back decision {last.number - 1}, {batch_text(last)}, records "
            f"{ranges_text(last.record)}, {show_time(last.at_ms)}"
        ]
    finished = "finished" if application.unfinished is None else "NOT FINISHED"
    lines = [
        f"  last decision {last.number}: {batch_text(last)}, {size_text(last)}, records {ranges_text(last.record)}, "
        f"{show_time(last.at_ms)}: {finished}"
    ]
    if application.unfinished is None:
        return lines
    rows: list[list[object]] = [["decided transaction", "producer id", "epoch", "rows", "fate"]]
    shown = list(application.fates.items())[:MAX_FATES_SHOWN]
    rows += [[each.transactional_id, each.producer_id, each.epoch, each.rows, fate.value] for each, fate in shown]
    if shown:
        lines.append(show_columns(rows, "    "))
    if len(application.fates) > len(shown):
        rest = ", ".join(f"{application.count(fate)} {fate.value}" for fate in Fate if application.count(fate))
        lines.append(f"    … and {len(application.fates) - len(shown)} more; in all: {rest}")
    if application.is_hurt:
        lines.append(f"  WARNING {loss_text(application.app_id, last, application)}")
    elif not application.count(Fate.WAITS):
        lines.append(
            "  all of it is committed; the next start of the query, or sparkonce transactions finish --app-id "
            f"{shlex.quote(application.app_id)}, notes that"
        )
    return lines


def _open_lines(application: Application, now_ms: int) -> list[str]:
    if not application.open:
        return ["  no open transactions"]
    rows: list[list[object]] = [[*_HEAD], *(_open_row(application, each, now_ms) for each in application.open)]
    lines = [show_columns(rows)]
    for why in Why:
        count = sum(each.why is why for each in application.open)
        if count:
            lines.append(f"  {count} {why.value}: {meaning(why, application)}")
    return lines


def _open_row(application: Application, each: OpenTransaction, now_ms: int) -> list[object]:
    found = each.found
    left = left_ms(each, now_ms)
    why = each.why.value
    if each.why is Why.DECIDED and application.unfinished is not None:
        why = f"decided by decision {application.unfinished.number} ({batch_text(application.unfinished)})"
    return [
        found.transactional_id,
        found.state.value,
        found.producer_id,
        found.epoch,
        show_duration(max(0, now_ms - found.started_ms)),
        show_duration(left) if left > 0 else "none",
        partitions_text(found.partitions),
        why,
    ]


def commands_that_end(application: Application, servers: str) -> tuple[str, ...]:
    """Return the command that ends what is open: what was decided is finished first, what was not is aborted.

    Without ``--apply``, abort shows what it would do.
    """
    common = f"--bootstrap-servers {shlex.quote(servers)} --app-id {shlex.quote(application.app_id)}"
    if application.unfinished is not None:
        return (f"sparkonce transactions finish {common}{' --accept' if application.is_hurt else ''}",)
    if any(each.why in (Why.UNDECIDED, Why.DECIDING) for each in application.open):
        return (f"sparkonce transactions abort {common}",)
    return ()


def left_ms(each: OpenTransaction, now_ms: int) -> int:
    """Return how long Kafka waits until it aborts the transaction."""
    return max(0, each.found.started_ms + each.found.timeout_ms - now_ms)


def partitions_text(partitions: tuple[Partition, ...]) -> str:
    """Format partitions, only the first few."""
    shown = ", ".join(f"{topic}-{partition}" for topic, partition in sorted(partitions)[:MAX_PARTITIONS_SHOWN])
    more = len(partitions) - MAX_PARTITIONS_SHOWN
    return (shown + (f" and {more} more" if more > 0 else "")) or "-"


def meaning(why: Why, application: Application) -> str:
    """Describe what happens to transactions open for this reason, and the command that ends them."""
    app_id = application.app_id
    match why:
        case Why.DECIDED if application.is_hurt:
            return "open until the decision is finished or undone, or until no time is left"
        case Why.DECIDED:
            return (
                "to be committed, by the driver if it runs, by the next start of the query if not, or by sparkonce "
                f"transactions finish --app-id {shlex.quote(app_id)}"
            )
        case Why.UNDECIDED:
            return (
                "the batch is running, or its driver has died; then the next start of the query aborts it, or "
                f"sparkonce transactions abort --app-id {shlex.quote(app_id)}, or Kafka when no time is left"
            )
        case Why.DECIDING:
            return (
                "the driver's own: it takes a decision just now, or it died; then Kafka aborts it when no time is left"
            )
        case Why.ENDING:
            return "it was ended, and the brokers are writing its markers"


def _open_json(application: Application, each: OpenTransaction, now_ms: int) -> dict[str, Any]:
    found, unfinished = each.found, application.unfinished
    return {
        "transactionalId": found.transactional_id,
        "state": found.state.value,
        "producerId": found.producer_id,
        "epoch": found.epoch,
        "timeoutMs": found.timeout_ms,
        "startedMs": found.started_ms,
        "ageMs": max(0, now_ms - found.started_ms),
        "leftMs": left_ms(each, now_ms),
        "partitions": [{"topic": topic, "partition": partition} for topic, partition in sorted(found.partitions)],
        "why": each.why.value,
        "decision": unfinished.number if each.why is Why.DECIDED and unfinished is not None else None,
    }


def _decision_json(application: Application) -> dict[str, Any] | None:
    last = application.decisions.last
    if last is None:
        return None
    fates = application.fates
    return {
        "number": last.number,
        "queryId": last.record.query_id,
        "batchId": last.record.batch_id,
        "ranges": last.record.to_commit_info(Writes.ROWS | Writes.OFFSETS)["ranges"],
        "group": last.group_id,
        "rows": last.rows,
        "atMs": last.at_ms,
        "undone": last.undone,
        "finished": application.unfinished is None,
        "settlement": application.settlement.value if application.settlement is not None else None,
        "transactions": [
            {
                "transactionalId": each.transactional_id,
                "producerId": each.producer_id,
                "epoch": each.epoch,
                "rows": each.rows,
                "fate": fates[each].value if each in fates else None,
            }
            for each in last.transactions
        ],
    }

"""A story as lines of text: each step a line, with a line for each replica below it."""

from __future__ import annotations

from collections.abc import Iterator

from sparkonce.jobs.lab.story.view import ReplicaView, Step, Table, Telling
from sparkonce.jobs.shared.arguments import show_columns


def lines(telling: Telling) -> Iterator[str]:
    """Yield the steps and tables of a telling."""
    for step in telling.steps:
        yield from _step(step)
    for table in telling.tables:
        yield from _table(table)


def result(name: str, telling: Telling) -> str:
    """Return the line for machines."""
    figures = " ".join(f"{figure}={count}" for figure, count in telling.figures.items())
    return f"RESULT story={name} rule={telling.rule.replace(' ', '-')} {figures}"


def brokers(ids: tuple[int, ...]) -> str:
    """Write a set of brokers."""
    return "{" + ",".join(map(str, ids)) + "}"


def _step(step: Step) -> Iterator[str]:
    yield f"{step.number:>2}. {step.text}."
    leader = f"leader {step.leader}" if step.leader >= 0 else "no leader"
    eligible = f"   ELR {brokers(step.eligible_leader_replicas)}" if step.eligible_leader_replicas else ""
    yield f"      {leader}, epoch {step.leader_epoch}   ISR {brokers(step.in_sync_replicas)}{eligible}"
    width = max(len(_records(each)) for each in step.replicas)
    for replica in step.replicas:
        epoch = f"epoch {replica.epoch}" if replica.epoch >= 0 else ""
        yield (
            f"      broker {replica.broker_id} {replica.role:<8}{epoch:<8} {_records(replica):<{width}}"
            f"  HW {replica.high_watermark}  LEO {replica.log_end_offset}"
        )
    if step.note:
        yield f"      {step.note}"


def _records(replica: ReplicaView) -> str:
    """Write a log: label@epoch, a star after what is acknowledged, a bar at the high watermark."""
    words = []
    for cell in replica.cells:
        if cell.offset == replica.high_watermark:
            words.append("|")
        words.append(f"{cell.label}@{cell.epoch}{'*' if cell.acknowledged else ''}")
    if replica.high_watermark == replica.log_end_offset:
        words.append("|")
    return " ".join(words)


def _table(table: Table) -> Iterator[str]:
    yield ""
    yield table.title
    yield show_columns((table.head, *table.rows), indent="")

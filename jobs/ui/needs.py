"""What needs a person: the faults that the pages know of, the worst first, each with its cause and its remedy.

Pure: it goes by what other modules have read. What mends itself is left out, such as a query that catches up.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from urllib.parse import quote

from sparkonce.connectors.lag.runs import RunState
from sparkonce.exactly_once.audit_report import Verdict
from sparkonce.jobs.cli.housekeeping.open_transactions import Application
from sparkonce.jobs.cli.housekeeping.transactions_report import (
    commands_that_end,
    loss_text,
    meaning,
    partitions_text,
)
from sparkonce.jobs.ui.delta.followed import AuditState
from sparkonce.jobs.ui.delta.pipelines import SETTLED_MS, Known, Pipeline
from sparkonce.jobs.ui.delta.query_states import BEHIND, FAILED, FENCED, IDLE, RUNNING, STOPPED
from sparkonce.jobs.ui.delta.tables import TableWatch
from sparkonce.jobs.ui.kafka.past import HISTORY_S
from sparkonce.jobs.ui.kafka.state import ClusterState, GroupState, OtherTransaction, TransactionsState
from sparkonce.jobs.ui.rendering import amount, grouped, lasting

HUNG_MS = 30_000
"""A transaction that is open for so long, and for which readers wait, is not one at work."""
LATE_S = 10.0
"""A group whose lag grows needs nobody before its records are so old."""
GROWS = 1.0
"""The growth of a lag, in offsets per second, that counts as one."""
PAST_MS = 24 * 3_600_000
"""A query that was fenced is named for so long, if another one goes on in its place; so is one that seems stopped, if
nothing says that records wait."""
_CODE = re.compile(r"\[[a-z-]+\] ")
"""Of a finding of the audit."""
_RECORD = re.compile(r"topic (\S+), partition (\d+),(?: in the batch)? at offset (\d+)", re.ASCII)
"""A record, as errors of a query name it."""


class Severity(IntEnum):
    """How bad it is."""

    WRONG = 0
    """Rows are lost or doubled, or what would show that is lost."""
    STOPPED = 1
    """Nothing is written, or read, until somebody acts; or nothing is known of it."""
    WAITING = 2
    """Readers wait."""
    BEHIND = 3
    """It is read more slowly than it is written."""


@dataclass(frozen=True, slots=True)
class Need:
    """A fault."""

    severity: Severity
    subject: str
    """Whose it is, such as ``Query orders``."""
    what: str
    """The predicate: ``has failed``."""
    why: str
    remedy: str
    link: str = ""
    """The page that shows more."""
    commands: tuple[str, ...] = ()
    record: str = ""
    """The page of the record that a query could not read."""


@dataclass(frozen=True, slots=True)
class Seen:
    """All that is known."""

    known: Known
    pipelines: Sequence[Pipeline]
    cluster: ClusterState = field(default_factory=ClusterState)
    groups: Mapping[str, GroupState] = field(default_factory=dict)
    transactions: TransactionsState = field(default_factory=TransactionsState)
    servers: str = ""
    now_ms: int = 0


def needs(seen: Seen) -> list[Need]:
    """Return all faults, the worst first."""
    found = [*_tables(seen), *_queries(seen), *_topics(seen), *_transactions(seen), *_groups(seen)]
    return sorted(found, key=lambda each: each.severity)


def link_of(pipeline: Pipeline) -> str:
    """Return the page of a query."""
    return f"/pipelines/{quote(pipeline.query_id, safe='')}"


def _tables(seen: Seen) -> Iterator[Need]:
    for place, why in seen.known.problems.items():
        remedy = "Check that it is there, and that this user may read it."
        yield Need(Severity.STOPPED, place, "cannot be read", why, remedy)
    for watch in seen.known.tables:
        audit = watch.followed.known
        if audit is not None and _is_broken(watch):
            yield _broken(watch, audit, seen)


def _is_broken(watch: TableWatch) -> bool:
    return watch.followed.known is not None and watch.followed.known.verdict is Verdict.BROKEN


def _broken(watch: TableWatch, audit: AuditState, seen: Seen) -> Need:
    wrong = [_CODE.sub("", text, count=1) for kind, text in audit.findings if kind == "wrong"]
    why = wrong[0].replace(f"{watch.followed.location}: ", "", 1) if wrong else audit.words
    link, version = f"/tables/{watch.key}", audit.lost_from
    if version is not None and len(wrong) == 1:  # the finding is that of the lost file
        why, link = f"{why.partition(' Bring it back')[0]} Version {version} has added it.", f"{link}?from={version}"
    why = f"{why[:1].upper()}{why[1:]}" + (f" … and {len(wrong) - 1} more." if wrong[1:] else "")
    remedy = f"{_stop_writers(watch, seen)}The page of the table has all findings, as does this command."
    if audit.lost_files:
        remedy = (
            "Bring the file back from a backup, or have its rows written again from Kafka, as Recovery in the "
            f"documentation says. {remedy}"
        )
    command = f"sparkonce audit {shlex.quote(watch.place)}"
    return Need(Severity.WRONG, f"Table {watch.name}", "is broken", why, remedy, link, (command,))


def _stop_writers(watch: TableWatch, seen: Seen) -> str:
    names = [
        each.name
        for each in seen.pipelines
        if each.state.word in (RUNNING, BEHIND, IDLE) and any(sink.watch is watch for sink in each.sinks)
    ]
    return f"Stop what writes to it: query {', '.join(names)}. " if names else ""


def _queries(seen: Seen) -> Iterator[Need]:
    for each in seen.pipelines:
        subject, link = f"Query {each.name}", link_of(each)
        is_followed = any(other.is_newer and other.is_here for other in each.others)
        gone = "" if is_followed else _gone(each, seen)
        if gone:
            remedy = "Compare the offsets with the log; Recovery in the documentation has each case."
            yield Need(Severity.WRONG, subject, "has read what is gone", gone, remedy, link, _offsets(each, seen))
        if each.state.word == FENCED and not (is_followed and seen.now_ms - (each.last_ms or 0) > PAST_MS):
            remedy = (
                "Stop one of the two drivers; the one that was not fenced goes on. To go on with this one, stop the "
                "other, and start this one with a new checkpoint and the option offsetStore: it begins where the "
                "table, or the group, ends."
            )
            yield Need(Severity.STOPPED, subject, "was fenced", each.state.why, remedy, link, _offsets(each, seen))
        elif each.state.word == FAILED and not is_followed:
            remedy = f"Do what the error says, and start it again{_with_checkpoint(each)}: it goes on where it was."
            record = _record(each, seen.cluster)
            yield Need(Severity.STOPPED, subject, "has failed", each.state.why, remedy, link, record=record)
        elif each.state.word == STOPPED and _is_missed(each, seen) and not is_followed and not _has_ended(each):
            waits = f"{amount(each.lag, 'offset')} wait" if each.lag else "how much waits is not known"
            why = f"{each.state.why[0].upper()}{each.state.why[1:]}; {waits}."
            broken = next((sink.watch.name for sink in each.sinks if _is_broken(sink.watch)), None)
            first = f"Mend table {broken} first. Then" if broken else ""
            start = "start" if each.state.is_certain else "see whether its driver is gone. If so, start"
            remedy = f"{first} {start} it again{_with_checkpoint(each)}, unless its next run is due".lstrip()
            remedy = f"{remedy[:1].upper()}{remedy[1:]}: it goes on where it was."
            what = "has stopped" if each.state.is_certain else "seems to have stopped"
            yield Need(Severity.STOPPED, subject, what, why, remedy, link)
        elif each.lag and _grows(each.trend, each.lag_s, each.pause_s):
            why = f"{amount(each.lag or 0, 'offset')} wait, {grouped(each.trend)} more each second."
            remedy = "Give it more cores or partitions; the page of the query shows which partitions lag."
            yield Need(Severity.BEHIND, subject, "falls behind", why, remedy, link)


def _grows(trend: float, lag_s: float | None, pause_s: float) -> bool:
    """Whether a lag that rises between commits and falls with each grows beyond that.

    Without a known age the next record is older than what is remembered of the ends.
    """
    return trend > GROWS and (HISTORY_S if lag_s is None else lag_s) > max(LATE_S, 2 * pause_s)


def _gone(pipeline: Pipeline, seen: Seen) -> str:
    """Say which logs are not those that a query has read; empty if none."""
    if pipeline.beyond:
        logs = ", ".join(sorted({row.topic for row in pipeline.beyond}))
        return f"The log of {logs} ends before the offset that the query has committed: it was made anew, or cut."
    goes_on = pipeline.state.is_certain and pipeline.state.word in (RUNNING, BEHIND, IDLE)
    if pipeline.made_anew and (goes_on or seen.now_ms - (pipeline.last_ms or 0) < PAST_MS):
        names = ", ".join(pipeline.made_anew)
        why = "it was deleted and created again, or these are not the brokers of the query."
        return f"Topic {names} has another id here than the one that the query has read: {why}"
    return ""


def _missing(seen: Seen) -> dict[str, list[str]]:
    """Return the topics that queries planned to read in their newest batch and that the brokers do not have."""
    readers: dict[str, list[str]] = {}
    for each in seen.pipelines if seen.cluster.topics else ():
        last_ms = each.last_ms or 0
        if last_ms + SETTLED_MS < each.ends_at_ms < last_ms + PAST_MS:  # the brokers were asked after that batch
            planned = {row.topic for row in each.partitions if row.planned is not None}
            for name in planned - seen.cluster.topics.keys():
                readers.setdefault(name, []).append(each.name)
    return readers


def _is_missed(pipeline: Pipeline, seen: Seen) -> bool:
    """Whether records wait for a query that has stopped; or may, as it was in a batch or its driver is gone."""
    if pipeline.lag is not None:
        return pipeline.lag > 0
    is_gone = pipeline.state.is_certain or (pipeline.checkpoint is not None and pipeline.checkpoint.is_at_work)
    return is_gone and seen.now_ms - (pipeline.last_ms or 0) < PAST_MS


def _has_ended(pipeline: Pipeline) -> bool:
    """Whether a query has ended without an error, as jobs with a schedule do, and nobody has to act."""
    return pipeline.state.is_certain and pipeline.run is not None and pipeline.run.state is RunState.ENDED


def _topics(seen: Seen) -> Iterator[Need]:
    topics = seen.cluster.topics
    for name, names in sorted(_missing(seen).items()):
        why = f"It does not exist, or these brokers do not show it to this user; read by {_listed(names)}."
        remedy = "Check that these are the brokers of the query, and that this user may describe the topic."
        yield Need(Severity.STOPPED, f"Topic {name}", "is not there", why, remedy)
    for topic in topics.values():
        if topic.without_leader:
            what = f"has {amount(topic.without_leader, 'partition')} without a leader"
            why = "All brokers that could lead them are down, or have failed disks."
            remedy = "Start these brokers; until then nobody reads or writes these partitions."
            yield Need(
                Severity.STOPPED, f"Topic {topic.name}", what, why, remedy, f"/topics/{quote(topic.name, safe='')}"
            )


def _transactions(seen: Seen) -> Iterator[Need]:
    going_on = [each for each in seen.pipelines if each.state.is_certain and each.state.word in (RUNNING, BEHIND, IDLE)]
    at_work = {app_id for each in going_on for app_id in each.app_ids}
    for application in seen.transactions.ours.applications:
        yield from _ours(application, application.app_id in at_work, seen)
    for other in seen.transactions.others:
        held_back = _held_back(other, seen.cluster)
        if seen.now_ms - other.started_ms >= HUNG_MS and held_back:
            open_for, where = _whole((seen.now_ms - other.started_ms) / 1000), partitions_text(other.partitions)
            why = f"Readers of committed records have waited for it in {where} for {open_for}."
            remedy, commands = _of_a_producer(other, held_back, seen)
            subject = f"Transaction {other.transactional_id}"
            yield Need(Severity.WAITING, subject, "is left open", why, remedy, "/transactions", commands)


def _of_a_producer(other: OtherTransaction, held_back: tuple[str, int], seen: Seen) -> tuple[str, tuple[str, ...]]:
    """Return how a producer's transaction ends, and a command if Kafka has not ended it in time.

    An abort by hand (KIP-664) is of one partition, past the coordinator: if the producer still lives and commits, the
    rows of the other partitions are visible.
    """
    first = "If its producer has died, its next start with this transactional id ends the transaction at once"
    left_s = (other.started_ms + other.timeout_ms - seen.now_ms) / 1000
    if left_s > -HUNG_MS / 1000:
        return f"{first}; or else Kafka aborts it in {_whole(max(left_s, 0))}.", ()
    topic, partition = held_back
    where = f"--topic {shlex.quote(topic)} --partition {partition}"
    remedy = (
        f"{first}. Kafka should have aborted it {_whole(-left_s)} ago. To abort it in each of its partitions by hand: "
        f"kafka-transactions.sh abort, with the start offset that this shows for producer {other.producer_id}:"
    )
    servers = shlex.quote(seen.servers)
    return remedy, (f"kafka-transactions.sh --bootstrap-server {servers} describe-producers {where}",)


def _whole(seconds: float) -> str:
    """Format a duration without a fraction that changes while somebody reads it."""
    return lasting(seconds) if seconds >= 90 else f"{seconds:.0f} s"


def _ours(application: Application, is_at_work: bool, seen: Seen) -> Iterator[Need]:
    subject, last = f"Transactions of appId {application.app_id}", application.decisions.last
    commands = commands_that_end(application, seen.servers)
    if application.is_hurt and last is not None:
        why = loss_text(application.app_id, last, application)
        yield Need(Severity.WRONG, subject, "were aborted", f"{why}.", "", "/transactions", commands)
        return
    old = [each for each in application.open if seen.now_ms - each.found.started_ms >= HUNG_MS]
    if not old or is_at_work:
        return
    by_hand = "; or end them by hand: abort shows what it would do, and does it with --apply."
    remedy = "Start the query again, which ends them" + (by_hand if commands else ".")
    why = f"Readers of committed records wait: {meaning(old[0].why, application)}."
    yield Need(Severity.WAITING, subject, "are left open", why, remedy, "/transactions", commands)


def _held_back(transaction: OtherTransaction, cluster: ClusterState) -> tuple[str, int] | None:
    """Return a partition of a transaction in which readers of committed records wait."""
    wanted = frozenset(transaction.partitions)
    for name in {name for name, _ in wanted} & cluster.topics.keys():
        for each in cluster.topics[name].partitions:
            if each.waiting and (name, each.partition) in wanted:
                return name, each.partition
    return None


def _groups(seen: Seen) -> Iterator[Need]:
    queries = {each.query_id for each in seen.pipelines}
    for group in seen.groups.values():
        if any(each.note is not None and each.note.query_id in queries for each in group.partitions):
            continue  # it is said of the query
        subject, lag = f"Group {group.group_id}", group.lag
        link = f"/groups/one?id={quote(group.group_id, safe='')}"
        if lag.beyond:
            why = f"{amount(lag.beyond, 'log')} ends before the committed offset: a topic was made anew, or cut."
            remedy = (
                "Stop its consumers, and move it to an offset that the log has; its page can do that if these pages "
                "were started with --allow-changes."
            )
            yield Need(Severity.WRONG, subject, "has read what is gone", why, remedy, link)
        elif lag.offsets and _grows(group.trend, lag.seconds, 0.0 if group.is_empty else group.pause_s):
            is_empty = group.is_empty
            why = f"{amount(lag.offsets, 'offset')} wait{_where(group)}, {grouped(group.trend)} more each second"
            why += ", and no member reads them." if is_empty else "."
            remedy = "Start its consumers." if is_empty else "Add members, up to one for each partition."
            yield Need(Severity.BEHIND, subject, "falls behind", why, remedy, link)


def _where(group: GroupState) -> str:
    """Say which partition lags most."""
    behind = sorted((each for each in group.partitions if each.lag), key=lambda each: -(each.lag or 0))
    others = f" and {amount(len(behind) - 1, 'other partition')}" if behind[1:] else ""
    return f" in {behind[0].topic}-{behind[0].partition}{others}" if behind else ""


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - 3} more" if names[3:] else ""
    return f"{'queries' if names[1:] else 'query'} {', '.join(names[:3])}{more}"


def _record(failed: Pipeline, cluster: ClusterState) -> str:
    """Return the page of the record that a query's error names; empty if it names none that is there."""
    named = _RECORD.search(failed.state.why)
    if named is None or named[1] not in failed.topics or named[1] not in cluster.topics:
        return ""
    return f"/topics/{named[1]}/messages?partition={named[2]}&begin=offset&at={named[3]}"


def _with_checkpoint(pipeline: Pipeline) -> str:
    return f" with its checkpoint {pipeline.checkpoint.place}" if pipeline.checkpoint else ""


def _offsets(pipeline: Pipeline, seen: Seen) -> tuple[str, ...]:
    brokers = f" --bootstrap-servers {shlex.quote(seen.servers)}" if seen.servers else ""
    return tuple(f"sparkonce offsets show {shlex.quote(sink.watch.place)}{brokers}" for sink in pipeline.sinks[:1])

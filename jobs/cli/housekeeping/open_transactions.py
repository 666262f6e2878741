"""What is open under the transactional ids of the sink, and why: what `sparkonce transactions list` shows.

Nothing is changed and nothing waited for, so a running query is not disturbed. What is read is a picture taken in
several steps, while queries may go on: a transaction may be decided a moment after it was found undecided.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from urllib.parse import unquote

from sparkonce.connectors.kafka_sink.decisions import DecisionLog
from sparkonce.connectors.kafka_sink.driver import DRIVER, Driver, Scope
from sparkonce.connectors.kafka_sink.transactions import (
    State,
    TransactionClient,
    TransactionDescription,
    transactional_prefix,
)
from sparkonce.exactly_once.transactions import (
    Decision,
    Decisions,
    Fate,
    PreparedTransaction,
    Settlement,
    settle,
)
from sparkonce.kafka.client.client import Client, MissingTopicError

MARK = transactional_prefix()


class Why(Enum):
    """Why a transaction is open."""

    DECIDED = "decided"
    """The last decision says that it is to be committed, and that was not done yet."""
    UNDECIDED = "undecided"
    """Its batch is running, or the driver of its batch has died."""
    DECIDING = "deciding"
    """It is the driver's own: a decision is on its way, or its driver died with it."""
    ENDING = "ending"
    """It was ended, and its markers are being written."""


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction that readers of committed records wait for, and why."""

    found: TransactionDescription
    why: Why


@dataclass(frozen=True, slots=True)
class Application:
    """The transactions of one application, and what was decided about them last."""

    app_id: str
    open: tuple[OpenTransaction, ...] = ()
    decisions: Decisions = field(default_factory=Decisions)
    fates: Mapping[PreparedTransaction, Fate] = field(default_factory=dict)
    """What has become of the transactions of its last decision, if that is not finished."""

    @property
    def unfinished(self) -> Decision | None:
        """The decision whose transactions are still to be ended, if there is one."""
        return self.decisions.unfinished

    @property
    def settlement(self) -> Settlement | None:
        """What is to be done about the last decision; None if it is finished, or there is none."""
        return None if self.unfinished is None else settle(list(self.fates.values()))

    @property
    def is_hurt(self) -> bool:
        """Whether what was decided cannot be finished any more."""
        return self.settlement not in (None, Settlement.FINISH)

    def count(self, fate: Fate) -> int:
        """Count the transactions of the last decision that ended like this."""
        return sum(each is fate for each in self.fates.values())


@dataclass(frozen=True, slots=True)
class Picture:
    """What was found on one cluster."""

    applications: tuple[Application, ...]
    others: int
    """How many open transactions belong to none of the applications that were asked for."""
    topic_exists: bool


def application_of(transactional_id: str) -> str | None:
    """Read the application from a transactional id; None if it is none of the sink's."""
    parts = transactional_id.split("/")
    known = transactional_id.startswith(MARK) and (len(parts) == 4 or parts[2:] == [DRIVER])
    return unquote(parts[1]) if known else None


def look(client: Client, decision_topic: str, app_id: str | None) -> Picture:
    """Look at all applications, or at one.

    Raises:
        KafkaUnreachableError, KafkaError, PermissionError, TransactionError, DecisionFormatError: if that fails.
    """
    transactions = TransactionClient(client)
    listed = transactions.open_transactions("")
    ours: dict[str, list[str]] = defaultdict(list)
    for name in listed:
        known = application_of(name)
        if known is not None and app_id in (None, known):
            ours[known].append(name)
    log = DecisionLog(client, decision_topic, app_id)
    exists = _exists(client, decision_topic)
    decided = log.look() if exists else {}
    found = transactions.describe([name for names in ours.values() for name in names])
    applications = []
    for each in sorted({*ours, *decided}):
        decisions, fates = _settled(client, log, each) if each in decided else (Decisions(), {})
        described = [found[name] for name in ours[each] if name in found and found[name].state.is_open]
        explained = tuple(OpenTransaction(one, _why(one, decisions.unfinished)) for one in described)
        if explained or decisions.last is not None:
            applications.append(Application(each, explained, decisions, fates))
    return Picture(tuple(applications), len(listed) - sum(map(len, ours.values())), exists)


def _exists(client: Client, topic: str) -> bool:
    try:
        client.topics([topic])
    except MissingTopicError:
        return False
    return True


def _settled(client: Client, log: DecisionLog, app_id: str) -> tuple[Decisions, Mapping[PreparedTransaction, Fate]]:
    """Return the decisions of an application, and what has become of the transactions of one that is not finished.

    Once it is finished its transactional ids may be in use again; so the log is read again before they count as gone.
    """
    decisions = log.decisions[app_id]
    while (unfinished := decisions.unfinished) is not None:
        scope = Scope(client.settings, app_id, log.topic, unfinished.group_id)
        fates = Driver(scope, client).fates(unfinished.transactions)
        if settle(list(fates.values())) is Settlement.FINISH or log.look()[app_id].unfinished == unfinished:
            return decisions, fates
    return decisions, {}


def _why(found: TransactionDescription, unfinished: Decision | None) -> Why:
    if found.state is not State.ONGOING:
        return Why.ENDING
    if found.transactional_id.split("/")[2:] == [DRIVER]:
        return Why.DECIDING
    decided: Iterable[PreparedTransaction] = () if unfinished is None else unfinished.transactions
    listed = {(each.transactional_id, each.producer_id, each.epoch) for each in decided}
    return Why.DECIDED if (found.transactional_id, found.producer_id, found.epoch) in listed else Why.UNDECIDED

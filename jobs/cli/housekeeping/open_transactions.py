"""Open transactions under the sink's transactional ids, and the reason: the data of `sparkonce transactions list`.

It changes nothing and waits for nothing, so a running query is not disturbed. The state is read in
several steps, while queries may run: a transaction may be decided just after it was found undecided.
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
from sparkonce.kafka.client.client import Client
from sparkonce.kafka.client.metadata import MissingTopicError

MARK = transactional_prefix()


class Why(Enum):
    """The reason why a transaction is open."""

    DECIDED = "decided"
    """The last decision is to commit it, and that has not happened yet."""
    UNDECIDED = "undecided"
    """Its batch is running, or its batch's driver has died."""
    DECIDING = "deciding"
    """It is the driver's own: a decision is being written, or its driver died during that."""
    ENDING = "ending"
    """It was ended, and its markers are being written."""


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction for which read_committed readers wait, and the reason."""

    found: TransactionDescription
    why: Why


@dataclass(frozen=True, slots=True)
class Application:
    """The transactions of one application, and its last decision."""

    app_id: str
    open: tuple[OpenTransaction, ...] = ()
    decisions: Decisions = field(default_factory=Decisions)
    fates: Mapping[PreparedTransaction, Fate] = field(default_factory=dict)
    """The state of the last decision's transactions, if that is not finished."""

    @property
    def unfinished(self) -> Decision | None:
        """The decision whose transactions must still be ended, if there is one."""
        return self.decisions.unfinished

    @property
    def settlement(self) -> Settlement | None:
        """What to do about the last decision; None if it is finished, or there is none."""
        return None if self.unfinished is None else settle(list(self.fates.values()))

    @property
    def is_hurt(self) -> bool:
        """Whether a decision can no longer be finished."""
        return self.settlement not in (None, Settlement.FINISH)

    def count(self, fate: Fate) -> int:
        """Count the last decision's transactions with this end."""
        return sum(each is fate for each in self.fates.values())


@dataclass(frozen=True, slots=True)
class Picture:
    """The state of one cluster."""

    applications: tuple[Application, ...]
    others: int
    """The number of open transactions of other applications than the requested ones."""
    topic_exists: bool


def application_of(transactional_id: str) -> str | None:
    """Parse the application from a transactional id; None if it is not the sink's."""
    parts = transactional_id.split("/")
    known = transactional_id.startswith(MARK) and (len(parts) == 4 or parts[2:] == [DRIVER])
    return unquote(parts[1]) if known else None


def look(client: Client, decision_topic: str, app_id: str | None) -> Picture:
    """Read the transactions of all applications, or of one.

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
    """Return an application's decisions, and the state of the transactions of an unfinished one.

    Once it is finished its transactional ids may be reused; so the log is read again before they count as lost.
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

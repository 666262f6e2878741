"""Manual actions on an application's transactions: finish what was decided, and abort what was not.

The same steps as a driver's `recover`, one at a time. Aborting claims the driver's transactional id first, so that no
decision about what is aborted can land meanwhile; and so does undoing a decision. A running query is then fenced.
"""

from __future__ import annotations

from sparkonce.connectors.kafka_sink.driver import Driver
from sparkonce.connectors.kafka_sink.transactions import ProducerIdentity, State, TransactionError
from sparkonce.connectors.kafka_sink.unfinished import Ended
from sparkonce.exactly_once.transactions import Decision, Fate, PreparedTransaction, Settlement


class AdministrationError(RuntimeError):
    """The requested action would break a guarantee, or is not possible; the message says why, and what to do."""


def finish(driver: Driver) -> Ended | None:
    """Finish the last decision, or undo it if nothing of it is visible; None if there is nothing to finish.

    Raises:
        TransactionsGoneError: if some of its transactions are gone or unknown, and others committed.
        OffsetStoreError: if it must be undone, and the group has members.
        TransactionError: if Kafka refuses something.
    """
    undone = driver.take_back_if_gone()
    if undone is not None:
        return undone
    found = driver.unfinished()
    if found is not None:
        driver.finish(found.decision)
    return found


def accept(driver: Driver) -> Ended | None:
    """As `finish`; but if that is impossible, commit what is left and still mark the decision as finished.

    Raises:
        OffsetStoreError, TransactionError: as `finish`.
    """
    found = driver.unfinished()
    if found is None or found.settlement in (Settlement.FINISH, Settlement.UNDO):
        return finish(driver)
    for each, fate in found.fates.items():
        if fate is Fate.WAITS:
            _commit(driver, each)
    ended = Ended(found.decision, driver.fates(found.decision.transactions))
    driver.log.append_finished(found.decision.number)
    return ended


def abort(driver: Driver, transactional_id: str | None = None) -> list[str]:
    """Abort open undecided transactions, or one of them, and return their ids. The running driver is fenced.

    Raises:
        AdministrationError: if ``transactional_id`` is decided, or not open.
        TransactionError: if Kafka refuses something.
    """
    driver_id = driver.scope.driver_id
    deciding = driver_id in driver.transactions.open_transactions(driver_id, (State.ONGOING,))
    number = _number(driver)
    driver.claim()
    aborted = [driver_id] if deciding and driver.log.read().number == number else []
    if transactional_id is None:
        return aborted + driver.abort_open(driver.scope.prefix)
    if transactional_id not in aborted:
        check_undecided(driver, transactional_id, driver.log.read().last)
        driver.transactions.fence([transactional_id])
    return [transactional_id]


def check_undecided(driver: Driver, transactional_id: str, last: Decision | None) -> None:
    """Check that a transaction may be aborted. Raises AdministrationError if not."""
    app_id = driver.scope.app_id
    if not transactional_id.startswith(driver.scope.prefix):
        raise AdministrationError(
            f"{transactional_id} is not a transactional id of appId {app_id}: these begin with {driver.scope.prefix}"
        )
    found = driver.transactions.describe([transactional_id]).get(transactional_id)
    if found is None or found.state is not State.ONGOING:
        state = "Kafka does not know it" if found is None else f"its state is {found.state.value}"
        raise AdministrationError(f"{transactional_id} has no open transaction that could be aborted: {state}")
    if last is not None and any(each.transactional_id == transactional_id for each in last.transactions):
        raise AdministrationError(
            f"{transactional_id} is in decision {last.number} (batch {last.record.batch_id} of query "
            f"{last.record.query_id}): its rows belong to the result. sparkonce transactions finish --app-id {app_id} "
            "commits it"
        )


def _number(driver: Driver) -> int:
    app_id = driver.scope.app_id
    decided = driver.log.look()
    return decided[app_id].number if app_id in decided else 0


def _commit(driver: Driver, transaction: PreparedTransaction) -> None:
    identity = ProducerIdentity(transaction.transactional_id, transaction.producer_id, transaction.epoch)
    try:
        driver.transactions.end(identity, commit=True)
    except TransactionError:
        if driver.fates([transaction])[transaction] is Fate.WAITS:
            raise

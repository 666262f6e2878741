"""A follower's fetch that makes records safe, by which a coordinator appends: the follower must not miss that."""

from __future__ import annotations

from sparkonce.broker_lite.coordinators.transaction_messages import TransactionState
from tests.unit.broker.script import LOOK_MS
from tests.unit.broker.scripted_transactions import end, init, state, three_brokers, write


def test_a_follower_does_not_wait_for_what_its_own_fetch_has_let_be_appended() -> None:
    """By a fetch the decision becomes safe, and the coordinator writes a marker: that fetch does not wait its time."""
    with three_brokers() as script:
        producer = init(script)
        write(script, producer, range(1))
        end(script, producer)
        script.pass_time(LOOK_MS)
        assert state(script, 1) is TransactionState.COMPLETE_COMMIT

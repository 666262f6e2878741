"""The transaction coordinator's state machine: every state with every request, lost, repeated and delayed."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from sparkonce.broker_lite.coordinators.transaction_log import decode_value, encode
from sparkonce.broker_lite.coordinators.transaction_messages import (
    EPOCH_BUMP,
    LEGACY,
    Decision,
    Producer,
    Transaction,
    TransactionState,
)
from sparkonce.broker_lite.coordinators.transactions import (
    MAX_EPOCH,
    PREPARED,
    TRANSITIONS,
    Transactions,
    check_invariants,
)
from sparkonce.kafka.protocol.errors import ErrorCode
from tests.chance import examples
from tests.unit.broker.test_transaction_states import FENCED, NONE, P0, P1, SETTINGS, TIMEOUT_MS, Ids


class Coordinator(RuleBasedStateMachine):
    """Clients of both kinds whose requests get lost, repeated and delayed; restarts at every point.

    `outcomes` is the truth that partitions would show: how the transaction of (producer id, epoch) was decided.
    """

    def __init__(self) -> None:
        super().__init__()
        self.log: dict[str, bytes] = {}
        self.ids = Ids()
        self.transactions = Transactions(SETTINGS, self.ids)
        self.now_ms = 0
        self.producer: Producer | None = None
        self.zombies: list[Producer] = []
        self.sent: list[tuple[Producer, bool]] = []
        self.open: dict[tuple[int, int], bool | None] = {}
        self.unwritten: list[tuple[str, tuple[str, int]]] = []
        self.is_fenced = False
        """Whether the broker has taken the epoch from the producer."""

    def apply(self, change: Transaction | None) -> None:
        if change is None:
            return
        record = encode(change, self.now_ms)
        assert record.value is not None
        self.log["x"] = record.value
        markers = self.transactions.applied(change)
        if markers is None:
            return
        before = (change.producer_id, change.last_epoch if change.client_version == EPOCH_BUMP else change.epoch)
        if markers.partitions:
            assert self.open[before] is None, "a transaction was decided twice"
            self.open[before] = markers.committed
            self.unwritten = [("x", each) for each in sorted(markers.partitions)]
        else:
            self.apply(self.transactions.markers_written("x", [], self.now_ms))

    def ask(self, decision: Decision) -> Decision:
        self.apply(decision.change)
        return decision

    @rule(bump=st.booleans())
    def init(self, bump: bool) -> None:
        claim = self.producer if bump and self.producer is not None else Producer("x", -1, -1)
        answer = self.ask(self.transactions.init_producer_id(claim, TIMEOUT_MS, self.now_ms))
        self.is_fenced |= answer.change is not None
        if answer.error is NONE:
            if self.producer is not None:
                self.zombies.append(self.producer)
            self.producer, self.is_fenced = Producer("x", answer.producer_id, answer.epoch), False

    @rule(partition=st.sampled_from([P0, P1]), version=st.sampled_from([LEGACY, EPOCH_BUMP]))
    def write(self, partition: tuple[str, int], version: int) -> None:
        if self.producer is not None:
            known = self.transactions.get("x")
            answer = self.ask(self.transactions.add_partitions(self.producer, [partition], version, self.now_ms))
            if answer.error is NONE:
                assert known is not None
                assert known.state not in PREPARED
                if known.state is not TransactionState.ONGOING:
                    self.open[self.producer.producer_id, self.producer.epoch] = None

    @rule(commit=st.booleans(), lost=st.booleans(), version=st.sampled_from([LEGACY, EPOCH_BUMP, EPOCH_BUMP]))
    def end(self, commit: bool, lost: bool, version: int) -> None:
        if self.producer is None:
            return
        producer = self.producer
        mine = (producer.producer_id, producer.epoch)
        known, before_end = self.transactions.get("x"), self.open.get(mine)
        # After an end without a bump, an abort with one is of the next transaction, of the same epoch and still empty.
        is_of_next = version == EPOCH_BUMP and known is not None and mine == (known.producer_id, known.epoch)
        answer = self.ask(self.transactions.end(producer, commit, version, self.now_ms))
        if version == EPOCH_BUMP and not (is_of_next and not commit and before_end is not None):
            self.sent.append((producer, commit))
        if version == EPOCH_BUMP and not self.is_fenced:
            assert answer.error not in (FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        ended = self.open.get(mine)
        if answer.error is NONE and ended is not None and not (is_of_next and before_end is not None):
            assert ended is commit
        if answer.error is NONE and version == EPOCH_BUMP and not lost:
            self.producer = Producer("x", answer.producer_id, answer.epoch)

    @rule(commit=st.booleans())
    def whole_transaction(self, commit: bool) -> None:
        """A transaction of a client with KIP-890 part 2, and the first write of the next one."""
        for version in (EPOCH_BUMP, EPOCH_BUMP):
            self.write_markers(2)
            self.write(P0, version)
            self.end(commit, False, version)
        self.write_markers(2)
        self.write(P0, EPOCH_BUMP)

    @rule(back=st.sampled_from([1, 1, 1, 2, 3, 5]))
    def delayed_end(self, back: int) -> None:
        """An EndTxn v5 comes again, or late: it decides at most the transaction that it was sent for (KAFKA-17754)."""
        if len(self.sent) < back:
            return
        producer, commit = self.sent[-back]
        mine = (producer.producer_id, producer.epoch)
        others = {key: value for key, value in self.open.items() if key != mine}
        answer = self.ask(self.transactions.end(producer, commit, EPOCH_BUMP, self.now_ms))
        assert {key: value for key, value in self.open.items() if key != mine} == others
        if answer.error is NONE and self.open.get(mine) is not None:
            assert self.open[mine] is commit

    @rule(pick=st.integers(0, 1_000))
    def zombie(self, pick: int) -> None:
        if self.zombies:
            producer = self.zombies[pick % len(self.zombies)]
            if self.producer is None or producer[1:] == self.producer[1:]:
                return
            assert self.transactions.add_partitions(producer, [P0], LEGACY, self.now_ms).change is None
            assert self.transactions.end(producer, True, LEGACY, self.now_ms).change is None

    @rule(count=st.integers(1, 2))
    def write_markers(self, count: int) -> None:
        done, self.unwritten = self.unwritten[:count], self.unwritten[count:]
        if done:
            self.apply(self.transactions.markers_written("x", [each for _, each in done], self.now_ms))

    @rule(passed_ms=st.sampled_from([1, TIMEOUT_MS // 2, TIMEOUT_MS + 1, SETTINGS.id_expiration_ms]))
    def time(self, passed_ms: int) -> None:
        self.now_ms += passed_ms
        for change in self.transactions.timed_out(self.now_ms):
            self.apply(change)
            self.is_fenced = True

    @rule()
    def expire(self) -> None:
        for each in self.transactions.expired(self.now_ms):
            del self.log[each]
            self.transactions.forgotten(each)
            self.is_fenced = True

    @rule()
    def restart(self) -> None:
        self.transactions = Transactions(SETTINGS, self.ids)
        for name, value in self.log.items():
            self.transactions.load(decode_value(name, value))
        self.unwritten = [
            (each.transactional_id, place) for each in self.transactions.decided() for place in sorted(each.partitions)
        ]

    @rule(epochs=st.integers(1, 3))
    def grow_old(self, epochs: int) -> None:
        """Jump to the end of the epochs, as after 32,000 transactions."""
        known = self.transactions.get("x")
        at_rest = known is not None and TransactionState.DEAD in TRANSITIONS[known.state]
        if known is not None and at_rest and known.epoch < MAX_EPOCH - 10 and self.producer is not None:
            old = replace(known, epoch=MAX_EPOCH - epochs - 1)
            if self.producer[1:] == (known.producer_id, known.epoch):
                self.zombies.append(self.producer)
                self.producer = Producer("x", old.producer_id, old.epoch)
            else:
                self.is_fenced = True
            self.apply(old)

    @invariant()
    def sound(self) -> None:
        check_invariants(self.transactions)
        known = self.transactions.get("x")
        assert bool(self.unwritten) == (known is not None and known.state in PREPARED)
        undecided = [key for key, outcome in self.open.items() if outcome is None]
        assert len(undecided) <= 1
        assert bool(undecided) == (known is not None and known.state is TransactionState.ONGOING)


Coordinator.TestCase.settings = settings(max_examples=examples(100), stateful_step_count=40, deadline=None)
TestCoordinator = Coordinator.TestCase

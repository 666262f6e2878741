"""Transactions under coordinators and leaders that change at random: each ends alike in all of its partitions."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from sparkonce.broker_lite.coordinators.transaction_log import TRANSACTIONS_TOPIC
from sparkonce.broker_lite.coordinators.transaction_messages import Producer, TransactionState
from sparkonce.kafka.protocol.apis import ApiKey
from sparkonce.kafka.protocol.control_records import read_end_marker
from sparkonce.kafka.protocol.errors import ErrorCode
from sparkonce.kafka.protocol.records import decode_records, scan
from tests.cases import each_case
from tests.unit.broker.script import REPLICAS, Script, Sent, error_of
from tests.unit.broker.scripted_transactions import PARTITIONS, end, init, is_settled, state, three_brokers, write


class _Course:
    """One random course of transactions under a coordinator that changes; markers are lost, late, and sent twice."""

    def __init__(self, script: Script, seed: int) -> None:
        self.script = script
        self.random = random.Random(seed)
        self.outcomes: list[tuple[Producer, bool | None]] = []

    def run(self) -> None:
        for number in range(4):
            self._transaction(number)

    def _coordinator(self) -> int:
        return self.script.leader(TRANSACTIONS_TOPIC, 0)

    def _transaction(self, number: int) -> None:
        script, chance = self.script, self.random
        producer = init(script, self._coordinator(), f"x{number}")
        write(script, producer)
        committed = chance.random() < 0.5
        with script.holding(ApiKey.WRITE_TXN_MARKERS) as held, ExitStack() as cut:
            if chance.random() < 0.5:
                cut.enter_context(script.unheard(self._coordinator()))
            call = end(script, producer, committed, coordinator=self._coordinator())
            for _ in range(chance.randrange(30)):
                self._step(held, cut)
                script.pass_time()
            acknowledged = call.answer is not None and error_of(call.answer) is ErrorCode.NONE
        self.outcomes.append((producer, committed if acknowledged else None))
        self._settle(held)

    def _step(self, held: list[Sent], cut: ExitStack) -> None:
        script, chance = self.script, self.random
        what = chance.randrange(7)
        if what == 0:
            script.let_lead(TRANSACTIONS_TOPIC, 0, chance.choice(REPLICAS))
        elif what == 1:
            script.let_lead("t", chance.randrange(PARTITIONS), chance.choice(REPLICAS))
        elif what == 2:
            script.pass_time(chance.choice((20, 50, 200)))
        elif what <= 4:
            cut.close()
            if what == 3:
                cut.enter_context(script.unheard(chance.choice(REPLICAS)))
        elif held:
            sent = chance.choice(held)
            sent.deliver()
            if chance.random() < 0.7:
                held.remove(sent)

    def _settle(self, held: list[Sent]) -> None:
        """Let the network be as it should, and every transaction come to its end."""
        for sent in held:
            if self.random.random() < 0.5:
                sent.deliver()
            else:
                sent.lose()
        self.script.pass_time(1_500)
        for producer, _ in self.outcomes:
            if state(self.script, self._coordinator(), producer.transactional_id) is TransactionState.ONGOING:
                end(self.script, producer, committed=False, coordinator=self._coordinator())
        self.script.pass_time(1_500)

    def check(self) -> None:
        assert is_settled(self.script)
        found = [dict(self._ends(index)) for index in range(PARTITIONS)]
        for producer, acknowledged in self.outcomes:
            ends = {each.get(producer.producer_id) for each in found}
            assert len(ends) == 1, f"{producer} ended differently: {ends}"
            assert acknowledged is None or ends == {acknowledged}, f"{producer} was told {acknowledged}"

    def _ends(self, index: int) -> Iterator[tuple[int, bool]]:
        ended: dict[int, bool] = {}
        data = self.script.log("t", index).read(0, 1 << 20, min_one_batch=True).read()
        for position, header in scan(data):
            if header.is_control:
                marker = read_end_marker(decode_records(memoryview(data)[position : position + header.size])[0])
                assert marker is not None
                assert ended.setdefault(header.producer_id, marker.committed) == marker.committed, "ended twice"
        yield from ended.items()


@each_case("seed", range(12))
def test_every_transaction_ends_alike_everywhere(seed: int) -> None:
    _run(seed)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(12, 300))
def test_every_transaction_ends_alike_everywhere_for_long(seed: int) -> None:
    _run(seed)


def _run(seed: int) -> None:
    with three_brokers() as script:
        course = _Course(script, seed)
        course.run()
        course.check()

"""The same requests get the same answers from Apache Kafka and from the broker: good, late, fenced and wrong ones."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from lab.peers import RealKafka, missing_kafka_reason
from sparkonce import EmbeddedBroker
from sparkonce.kafka.protocol.apis import ApiKey
from sparkonce.kafka.protocol.errors import ErrorCode
from tests.interop.plain_client import TRANSACTION_TIMEOUT_MS, PlainClient

pytestmark = [pytest.mark.java, pytest.mark.soak]
AGAIN = {
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
}
DEADLINE_S = 30.0
Producer = tuple[int, int]
Answer = tuple[ErrorCode, int, int]


class Script:
    """Requests about one transactional id; ids and names are told as if they were the same everywhere."""

    def __init__(self, client: PlainClient) -> None:
        self.client = client
        self.id, self.topic, self.group = (f"{kind}-{uuid.uuid4()}" for kind in ("x", "t", "g"))
        self.said: list[object] = []
        client.create_topic(self.topic)
        for kind, name in ((0, self.group), (1, self.id)):
            self.patiently(lambda kind=kind, name=name: self._find(kind, name))  # type: ignore[misc]
        _, self.first_producer_id, _ = self.patiently(self.init)

    def patiently(self, ask: Callable[[], Any]) -> Any:
        """Ask until the answer is final."""
        deadline = time.monotonic() + DEADLINE_S
        while True:
            answer = ask()
            first = answer[0] if isinstance(answer, tuple) else answer
            if first not in AGAIN or time.monotonic() > deadline:
                return answer

    def say(self, what: str, *answers: object) -> None:
        self.said.append((what, *answers))

    def _find(self, kind: int, name: str) -> ErrorCode:
        return ErrorCode(self.client.ask(ApiKey.FIND_COORDINATOR, 3, key=name, key_type=kind).error_code)

    def told(self, answer: Answer) -> Answer:
        error, producer_id, epoch = answer
        return error, producer_id - self.first_producer_id if producer_id >= 0 else -1, epoch

    def init(self, producer: Producer = (-1, -1), timeout_ms: int = TRANSACTION_TIMEOUT_MS) -> Answer:
        answer = self.client.ask(
            ApiKey.INIT_PRODUCER_ID, 5, transactional_id=self.id, transaction_timeout_ms=timeout_ms,
            producer_id=producer[0], producer_epoch=producer[1],
        )  # fmt: skip
        return ErrorCode(answer.error_code), answer.producer_id, answer.producer_epoch

    def end(self, producer: Producer, committed: bool, version: int = 5) -> Answer:
        answer = self.client.ask(
            ApiKey.END_TXN, version, transactional_id=self.id, producer_id=producer[0], producer_epoch=producer[1],
            committed=committed,
        )  # fmt: skip
        error = ErrorCode(answer.error_code)
        return (error, answer.producer_id, answer.producer_epoch) if version >= 5 else (error, -1, -1)

    def produce(self, producer: Producer, sequence: int = 0, version: int = 12, other: str = "") -> ErrorCode:
        error: ErrorCode = self.patiently(
            lambda: self.client.produce(self.topic, [b"v"], other or self.id, producer, sequence, version)
        )
        return error

    def add(self, producer: Producer, version: int = 3, partitions: tuple[int, ...] = (0,)) -> list[ErrorCode]:
        answer = self.client.ask(
            ApiKey.ADD_PARTITIONS_TO_TXN, version, v3_and_below_transactional_id=self.id,
            v3_and_below_producer_id=producer[0], v3_and_below_producer_epoch=producer[1],
            v3_and_below_topics=[(self.topic, list(partitions))],
        )  # fmt: skip
        results = answer.results_by_topic_v3_and_below[0].results_by_partition
        return [ErrorCode(each.partition_error_code) for each in sorted(results, key=lambda each: each.partition_index)]

    def commit_offset(self, producer: Producer, version: int = 5, generation: int = -1, member: str = "") -> object:
        def ask() -> tuple[ErrorCode, ...]:
            answer = self.client.ask(
                ApiKey.TXN_OFFSET_COMMIT, version, transactional_id=self.id, group_id=self.group,
                producer_id=producer[0], producer_epoch=producer[1], generation_id=generation, member_id=member,
                group_instance_id=None, topics=[(self.topic, [(0, 5, -1, None), (9, 5, -1, None)])],
            )  # fmt: skip
            results = sorted(answer.topics[0].partitions, key=lambda each: each.partition_index)
            return tuple(ErrorCode(each.error_code) for each in results)

        return self.patiently(ask)

    def committed(self, require_stable: bool = False) -> object:
        def ask() -> object:
            answer = self.client.ask(
                ApiKey.OFFSET_FETCH, 7, group_id=self.group, topics=[(self.topic, [0])], require_stable=require_stable
            )
            if not answer.topics:
                return ErrorCode(answer.error_code)
            (found,) = answer.topics[0].partitions
            return ErrorCode(found.error_code), found.committed_offset

        return self.patiently(ask)

    def state(self) -> object:
        """Describe the id, once its last transaction is complete."""
        deadline = time.monotonic() + DEADLINE_S
        while True:
            answer = self.client.ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=[self.id])
            (found,) = answer.transaction_states
            if not found.transaction_state.startswith("Prepare") or time.monotonic() > deadline:
                break
        places = sorted((each.topic.split("-")[0], len(each.partitions)) for each in found.topics)
        identity = self.told((ErrorCode(found.error_code), found.producer_id, found.producer_epoch))
        return found.transaction_state, identity, places, found.transaction_start_time_ms > 0

    def marker(
        self, producer: Producer, epoch: int, coordinator_epoch: int = 0, version: int = 1
    ) -> list[tuple[bool, ErrorCode]]:
        marker: tuple[object, ...] = (producer[0], epoch, False, [(self.topic, [0]), ("gone", [0])], coordinator_epoch)
        if version >= 2:
            marker += (2,)
        answer = self.client.ask(ApiKey.WRITE_TXN_MARKERS, version, markers=[marker])
        topics = answer.markers[0].topics
        return sorted((each.name == "gone", ErrorCode(each.partitions[0].error_code)) for each in topics)

    def ends(self) -> tuple[int, int]:
        """Return last stable offset and end."""
        return self.client.list_offset(self.topic, 0, -1, 1), self.client.list_offset(self.topic, 0, -1)

    def play(self) -> list[object]:
        producer = self.play_epochs()
        producer = self.play_verification(producer)
        producer = self.play_claims(producer)
        self.play_old_clients(producer)
        self.play_offsets(producer)
        self.play_markers()
        self.play_lists()
        return self.said

    def play_epochs(self) -> Producer:
        producer = (self.first_producer_id, 0)
        self.say("nothing to commit", self.end(producer, True), self.end(producer, True, 4), self.state())
        self.say("nothing to abort", self.end(producer, False, 4))
        _, *after = answer = self.end(producer, False)
        self.say("aborts nothing", self.told(answer), self.state())
        producer = (after[0], after[1])
        self.say("writes", self.produce(producer), self.state(), self.produce((producer[0], producer[1] + 1)))
        _, *after = answer = self.end(producer, True)
        self.say(
            "commits", self.told(answer), self.told(self.patiently(lambda: self.end(producer, True))), self.state()
        )
        later = (after[0], after[1])
        self.say("asks the other way", self.end(producer, False), self.end(later, True))
        self.say("writes again", self.produce(later))
        self.say("delayed", self.end(producer, True), self.end(producer, False), self.produce(producer, 1))
        _, *after = answer = self.end(later, False)
        last = (after[0], after[1])
        self.say("aborts", self.told(answer), self.told(self.patiently(lambda: self.end(later, False))), self.state())
        self.say("commits instead", self.end(later, True), self.end(last, True), self.produce(later, 1))
        return last

    def play_verification(self, producer: Producer) -> Producer:
        self.say("not added", self.produce(producer, 0, 10), self.produce(producer, 0, 11))
        self.say("of another id", self.produce(producer, other=f"y-{uuid.uuid4()}"))
        self.say("begins late", self.produce(producer, 5), self.state())
        _, *after = answer = self.patiently(lambda: self.end(producer, False))
        self.say("aborts", self.told(answer), self.state())
        return after[0], after[1]

    def play_claims(self, producer: Producer) -> Producer:
        self.say("bumps", self.told(self.patiently(lambda: self.init(producer))), self.told(self.init(producer)))
        older, odd = (producer[0], producer[1] - 1), (producer[0] + 1_000_000, 0)
        self.say("may not", self.init(older), self.init(odd), self.init((producer[0], -1)), self.init((-1, 3)))
        self.say("timeouts", self.init(timeout_ms=0), self.init(timeout_ms=1_000_000_000))
        _, *after = answer = self.init()
        self.say("another instance", self.told(answer), self.init(producer))
        zombie = (after[0], after[1])
        self.say("writes", self.produce(zombie), "is fenced", self.init(), self.state())
        self.say(
            "zombie", self.told(self.end(zombie, True)), self.told(self.end(zombie, False)), self.produce(zombie, 1)
        )
        _, *after = answer = self.patiently(self.init)
        self.say("heir", self.told(answer), self.end(zombie, True), self.end(zombie, False), self.produce(zombie, 1))
        return after[0], after[1]

    def play_old_clients(self, producer: Producer) -> None:
        zombie, odd = (producer[0], producer[1] - 2), (producer[0] + 1_000_000, 0)
        self.say("adds", self.add(producer), self.add(zombie), self.add(zombie, 1), self.add(odd), self.state())
        self.say("adds what is not there", self.add(producer, 3, (0, 9)))
        self.say("writes", self.produce(producer, 0, 10), "commits", self.end(producer, True, 4), self.state())
        self.say("again", self.patiently(lambda: self.end(producer, True, 4)), self.end(producer, False, 4))
        self.say("not added", self.produce(producer, 1, 10), self.add(producer), self.produce(producer, 1, 10))

    def play_offsets(self, producer: Producer) -> None:
        zombie, odd = (producer[0], producer[1] - 2), (producer[0] + 1_000_000, 0)
        self.say("not added", self.commit_offset(producer, 3), self.commit_offset(producer, 4))
        self.say(
            "may not", self.commit_offset(zombie), self.commit_offset(odd), self.commit_offset(producer, 5, 3, "m")
        )
        self.say("offsets", self.commit_offset(producer), self.state(), self.committed(True), self.committed())
        self.say("zombie", self.commit_offset(zombie))
        self.say("commits", self.end(producer, True, 4), self.state(), self.committed(True), self.committed())
        self.say("ends", self.ends())

    def play_markers(self) -> None:
        _, *after = answer = self.patiently(self.init)
        producer = (after[0], after[1])
        epoch = producer[1]
        self.say("writes", self.told(answer), self.produce(producer))
        self.say("old marker", self.marker(producer, epoch - 1), self.marker(producer, epoch, version=2))
        self.say("marker", self.marker(producer, epoch), self.marker(producer, epoch, version=2))
        self.say("old coordinator", self.marker(producer, epoch, -1), self.state())
        answer = self.client.ask(ApiKey.DESCRIBE_PRODUCERS, 0, topics=[(self.topic, [0]), ("gone", [0])])
        for topic in sorted(answer.topics, key=lambda each: str(each.name == "gone")):
            (found,) = topic.partitions
            producers = [
                (each.producer_epoch, each.last_sequence, each.coordinator_epoch, each.current_txn_start_offset)
                for each in found.active_producers
            ]
            self.say("producers", ErrorCode(found.error_code), producers)
        self.say("commits", self.told(self.end(producer, True)), self.state(), self.ends())
        for offset in range(self.ends()[1]):
            result = self.client.fetch(self.topic, 0, offset, isolation_level=1)
            aborted = sorted(each.first_offset for each in result.aborted_transactions or ())
            assert isinstance(result.records, memoryview)
            self.say(f"fetch {offset}", aborted, result.last_stable_offset, len(result.records))

    def play_lists(self) -> None:
        plain = {"producer_id_filters": [], "duration_filter": -1}
        odd = self.client.ask(
            ApiKey.LIST_TRANSACTIONS, 2, state_filters=["Odd"], **plain, transactional_id_pattern=None
        )
        self.say("odd state", odd.error_code, list(odd.unknown_state_filters), len(odd.transaction_states))
        pattern = self.id[:-1] + "."
        found = self.client.ask(
            ApiKey.LIST_TRANSACTIONS, 2, state_filters=[], **plain, transactional_id_pattern=pattern
        )
        self.say(
            "pattern", [(each.transactional_id == self.id, each.transaction_state) for each in found.transaction_states]
        )
        wrong = self.client.ask(ApiKey.LIST_TRANSACTIONS, 2, state_filters=[], **plain, transactional_id_pattern="((")
        self.say("no pattern", ErrorCode(wrong.error_code))
        for name in ("", f"unknown-{uuid.uuid4()}"):
            (known,) = self.client.ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=[name]).transaction_states
            self.say("unknown", ErrorCode(known.error_code), known.producer_id, known.producer_epoch)


def test_the_answers_are_kafkas() -> None:
    reason = missing_kafka_reason()
    if reason is not None:
        pytest.skip(reason)
    transcripts = []
    for start in (partial(RealKafka, heap="300m"), EmbeddedBroker):
        with start() as broker, PlainClient(broker.bootstrap_servers) as client:
            transcripts.append(Script(client).play())
    kafkas, ours = transcripts
    assert len(ours) > 40
    assert ours == kafkas

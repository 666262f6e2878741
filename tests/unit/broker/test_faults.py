"""`EmbeddedBroker.faults`, as a client sees it, with the broker in a thread and in a process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import pytest

from sparkonce import EmbeddedBroker
from sparkonce.broker_lite.faults import FaultNeverFiredError
from sparkonce.kafka.protocol import apis, fetch, produce
from sparkonce.kafka.protocol.apis import ApiKey
from sparkonce.kafka.protocol.errors import ErrorCode
from sparkonce.kafka.protocol.primitives import ZERO_UUID
from tests.unit.broker.test_connection import Client, batch_of, fetch_body, make_topic, produce_body, serves

BOTH = pytest.mark.parametrize("broker", [False, True], ids=["thread", "process"], indirect=True)
THREAD = pytest.mark.parametrize("broker", [False], ids=["thread"], indirect=True)


@pytest.fixture(scope="module")
def brokers() -> Iterator[Callable[[bool], EmbeddedBroker]]:
    """One broker in a thread and one in a process, each from when it is asked for."""
    with ExitStack() as stack:

        @cache
        def started(process: bool) -> EmbeddedBroker:
            return stack.enter_context(EmbeddedBroker(process=process, config={"num.partitions": 2}))

        yield started


@pytest.fixture
def broker(brokers: Callable[[bool], EmbeddedBroker], request: pytest.FixtureRequest) -> Iterator[EmbeddedBroker]:
    """One of the two, with two empty topics."""
    running = brokers(request.param)
    client = Client(running)
    make_topic(client, "t")
    make_topic(client, "u")
    client.close()
    yield running
    running.faults.clear()
    client = Client(running)
    body = apis.encode_request(apis.request(ApiKey.DELETE_TOPICS, 4, topic_names=["t", "u"], timeout_ms=10_000), 4)
    client.request(ApiKey.DELETE_TOPICS, 4, bytes(body))
    answer = apis.decode_response(ApiKey.DELETE_TOPICS, 4, client.answer(ApiKey.DELETE_TOPICS, 4)[1])
    assert [each.error_code for each in answer.responses] == [0, 0]
    client.close()


class Peer(Client):
    """A client that produces and reads back."""

    def send(self, value: bytes, index: int = 0) -> None:
        self.request(ApiKey.PRODUCE, 9, produce_body(batch_of(value), index=index))

    def sent(self) -> int:
        answer = produce.decode_response(9, self.answer(ApiKey.PRODUCE, 9)[1])
        return answer.topics[0].partitions[0].error_code

    def produce(self, value: bytes, index: int = 0) -> int:
        self.send(value, index)
        return self.sent()

    def end_offset(self) -> int:
        self.request(ApiKey.FETCH, 12, fetch_body(0, 0))
        return fetch.decode_response(12, self.answer(ApiKey.FETCH, 12)[1]).topics[0].partitions[0].high_watermark


@pytest.fixture
def peer(broker: EmbeddedBroker) -> Iterator[Peer]:
    client = Peer(broker)
    yield client
    client.close()


@BOTH
def test_an_error_has_no_effect_and_comes_as_often_as_was_said(broker: EmbeddedBroker, peer: Peer) -> None:
    with broker.faults.fail("NOT_ENOUGH_REPLICAS", api="Produce", topic="t", partition=0, nth=2, times=2) as fault:
        told = [peer.produce(b"x") for _ in range(4)]
        assert peer.produce(b"x", index=1) == 0
        assert fault.fired == 2
    assert told == [0, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS, 0]
    assert peer.end_offset() == 2


@BOTH
def test_a_lost_acknowledgement(broker: EmbeddedBroker, peer: Peer) -> None:
    with broker.faults.drop_after(api="Produce", times=1) as fault:
        peer.send(b"x")
        assert peer.is_closed()
        fault.wait()
    again = Peer(broker)
    assert again.end_offset() == 1
    again.close()


@BOTH
def test_a_lost_request(broker: EmbeddedBroker, peer: Peer) -> None:
    with broker.faults.drop_before(api=["Produce", "Fetch"], times=1):
        peer.send(b"x")
        assert peer.is_closed()
    again = Peer(broker)
    assert again.end_offset() == 0
    again.close()


@BOTH
def test_a_pause_holds_one_connection_until_released(broker: EmbeddedBroker, peer: Peer) -> None:
    other = Client(broker)
    with broker.faults.pause(api="Produce") as fault:
        peer.send(b"x")
        fault.wait()
        assert fault.held == 1
        assert serves(other)
        fault.release()
        assert peer.sent() == 0
        peer.send(b"y")
        fault.wait(times=2)
    assert peer.sent() == 0
    assert peer.end_offset() == 2
    other.close()


@BOTH
def test_a_delay(broker: EmbeddedBroker, peer: Peer) -> None:
    with broker.faults.delay(1, api="ApiVersions"):
        assert serves(peer)


@BOTH
def test_throttling_is_told_and_holds_the_next_request(broker: EmbeddedBroker, peer: Peer) -> None:
    with broker.faults.throttle(throttle_time_ms=20):
        peer.send(b"x")
        assert produce.decode_response(9, peer.answer(ApiKey.PRODUCE, 9)[1]).throttle_time_ms == 20
        peer.request(ApiKey.FETCH, 12, fetch_body(0, 0))
        answer = fetch.decode_response(12, peer.answer(ApiKey.FETCH, 12)[1])
        assert answer.throttle_time_ms == 20
        assert len(answer.topics[0].partitions[0].records) == len(batch_of(b"x"))  # type: ignore[arg-type]
        for key, version, body in (
            (ApiKey.LIST_GROUPS, 5, apis.encode_request(apis.request(ApiKey.LIST_GROUPS, 5), 5)),
            (ApiKey.API_VERSIONS, 2, b""),
        ):
            peer.request(key, version, bytes(body))
            assert apis.decode_response(key, version, peer.answer(key, version)[1]).throttle_time_ms == 20


@BOTH
def test_a_rate_slows_answers(broker: EmbeddedBroker, peer: Peer) -> None:
    with broker.faults.throttle(bytes_per_s=1_000_000, api="Produce"):
        assert peer.produce(b"x" * 10_000) == 0


@BOTH
@pytest.mark.parametrize("after_effect", [False, True])
def test_a_restart_at_a_request(broker: EmbeddedBroker, peer: Peer, after_effect: bool) -> None:
    kill = broker.pid is not None
    before = broker.pid
    with broker.faults.restart(kill=kill, after_effect=after_effect, api="Produce", nth=2) as fault:
        assert peer.produce(b"x") == 0
        peer.send(b"y")
        assert peer.is_closed()
        fault.wait()
        assert fault.fired == 1
        assert broker.pid is None or broker.pid != before
        again = Peer(broker)
        assert again.end_offset() == (2 if after_effect else 1)
        assert again.produce(b"z") == 0
        again.close()


@BOTH
def test_rules_and_their_counts_outlive_a_restart(broker: EmbeddedBroker, peer: Peer) -> None:
    with broker.faults.fail("REQUEST_TIMED_OUT", api="Produce", nth=3, times=1) as fault:
        assert peer.produce(b"x") == 0
        broker.restart()
        again = Peer(broker)
        assert [again.produce(b"x") for _ in range(3)] == [0, ErrorCode.REQUEST_TIMED_OUT, 0]
        again.close()
        assert fault.fired == 1


def test_rules_wait_for_a_broker_that_is_down() -> None:
    with EmbeddedBroker(process=True) as running:
        running.kill()
        with running.faults.fail("REQUEST_TIMED_OUT", api="Metadata", topic="t", times=1) as fault:
            running.restart()
            client = Client(running)
            make_topic(client, "t")
            client.close()
            assert fault.fired == 1


@BOTH
def test_a_full_disk(broker: EmbeddedBroker, peer: Peer) -> None:
    with broker.faults.disk_full(topic="t", partition=0) as fault:
        assert [peer.produce(b"x"), peer.produce(b"x", index=1)] == [ErrorCode.KAFKA_STORAGE_ERROR, 0]
        assert fault.fired == 1
    assert peer.produce(b"x") == 0
    assert peer.end_offset() == 1


@BOTH
def test_a_disk_that_is_full_everywhere_does_not_stop_a_restart(broker: EmbeddedBroker, peer: Peer) -> None:
    with broker.faults.disk_full() as fault:
        assert peer.produce(b"x") == ErrorCode.KAFKA_STORAGE_ERROR
        broker.restart()
        again = Peer(broker)
        assert again.produce(b"x") == ErrorCode.KAFKA_STORAGE_ERROR
        again.close()
        assert fault.fired >= 2


@BOTH
def test_a_slow_disk(broker: EmbeddedBroker, peer: Peer) -> None:
    with broker.faults.slow_disk(1, topic="t"):
        assert peer.produce(b"x") == 0


@BOTH
def test_a_client_is_chosen_by_its_id(broker: EmbeddedBroker, peer: Peer) -> None:
    with broker.faults.drop_before(client_id="somebody else", must_fire=False):
        assert peer.produce(b"x") == 0


@THREAD
def test_a_predicate(broker: EmbeddedBroker, peer: Peer) -> None:
    def without_acks(request: produce.ProduceRequest) -> bool:
        return request.acks == 1

    with broker.faults.fail("INVALID_REQUIRED_ACKS", api="Produce", predicate=without_acks) as fault:
        assert peer.produce(b"x") == 0
        peer.request(ApiKey.PRODUCE, 9, produce_body(batch_of(b"x"), acks=1))
        assert peer.sent() == ErrorCode.INVALID_REQUIRED_ACKS
        assert fault.fired == 1


@THREAD
def test_what_a_predicate_raises_is_the_tests(
    broker: EmbeddedBroker, peer: Peer, caplog: pytest.LogCaptureFixture
) -> None:
    def mistaken(request: produce.ProduceRequest) -> bool:
        return request.no_such_field == 1  # type: ignore[attr-defined]

    with (
        pytest.raises(AttributeError, match="no_such_field"),
        broker.faults.fail("INVALID_REQUIRED_ACKS", api="Produce", predicate=mistaken, must_fire=False),
    ):
        assert peer.produce(b"x") == 0
    fault = broker.faults.delay(1, api="Produce", predicate=mistaken)
    assert peer.produce(b"x") == 0
    with pytest.raises(AttributeError, match="no_such_field"):
        fault.wait()
    fault.remove()
    with (
        pytest.raises(ZeroDivisionError) as raised,
        broker.faults.delay(1, api="Produce", predicate=lambda _: pytest.fail("in vain")),
    ):
        peer.produce(b"x") // 0
    assert "the predicate of the fault raised" in raised.value.__notes__[0]
    assert peer.end_offset() == 3
    assert "mistake of the broker's" not in caplog.text


def test_a_fault_that_never_fires_is_an_error(kafka_broker: EmbeddedBroker) -> None:
    with (
        pytest.raises(FaultNeverFiredError, match=r"drop after Produce t never fired: 0 matching.*must_fire=False"),
        kafka_broker.faults.drop_after(api="Produce", topic="t"),
    ):
        pass
    with kafka_broker.faults.drop_after(api="Produce", must_fire=False):
        pass
    # An error of the test itself is not hidden by it.
    with pytest.raises(ZeroDivisionError), kafka_broker.faults.drop_after(api="Produce"):
        raise ZeroDivisionError


def test_waiting_in_vain_says_what_for(kafka_broker: EmbeddedBroker) -> None:
    with (
        kafka_broker.faults.pause(api="Fetch", must_fire=False) as fault,
        pytest.raises(TimeoutError, match=r"pause Fetch; fired 0> did not happen 1 times within 0\.01 s"),
    ):
        fault.wait(timeout_s=0.01)


def test_nonsense_is_refused(kafka_broker: EmbeddedBroker) -> None:
    faults = kafka_broker.faults
    with pytest.raises(ValueError, match=r"api='Prduce' is not served here; there are .*Produce"):
        faults.delay(1, api="Prduce")
    with pytest.raises(
        ValueError, match=r"'NOT_LEADER' is no error of Kafka's; the nearest are NOT_LEADER_OR_FOLLOWER"
    ):
        faults.fail("NOT_LEADER")
    with pytest.raises(ValueError, match=r"nearest are NOT_ENOUGH_REPLICAS, "):
        faults.fail("NOT_ENOUGH_REPLICA5")
    with pytest.raises(TypeError, match=r"delay_ms='50': expected a number of milliseconds"):
        faults.delay("50")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"partition='0': expected a whole number"):
        faults.pause(partition="0")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"times=True: expected a whole number, or None"):
        faults.pause(times=True)
    with pytest.raises(TypeError, match=r"predicate=1: expected something to call"):
        faults.pause(predicate=1)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="no topics"):
        faults.delay(1, topics="t")  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="cannot be killed"):
        faults.restart(kill=True)
    with pytest.raises(ValueError, match="NONE is no error"):
        faults.fail("NONE")
    with pytest.raises(ValueError, match="throttle_time_ms or bytes_per_s"):
        faults.throttle()
    with EmbeddedBroker(process=True) as process, pytest.raises(ValueError, match="thread only"):
        process.faults.pause(predicate=bool)


def test_nothing_is_in_the_way_without_faults(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as running:
        server = running._runner._server  # type: ignore[union-attr]
        assert server.broker is not None
        first = running.faults.pause(api="Fetch")
        second = running.faults.slow_disk(0)
        assert server.broker.faults is not None
        assert server.write_gate.check is not None
        first.remove()
        second.remove()
        assert server.broker.faults is None
        assert server.write_gate.check is None


@THREAD
def test_one_partition_of_a_fetch_session_fails(broker: EmbeddedBroker, peer: Peer) -> None:
    wanted = [fetch.FetchTopic(name, ZERO_UUID, [fetch.FetchPartition(0, 0, 1000)]) for name in ("t", "u")]
    peer.request(ApiKey.FETCH, 12, bytes(fetch.encode_request(12, fetch.FetchRequest(0, 0, 1000, wanted, 0, 0, 0))))
    session_id = fetch.decode_response(12, peer.answer(ApiKey.FETCH, 12)[1]).session_id
    request = fetch.FetchRequest(0, 0, 1000, [], session_id=session_id, session_epoch=1)
    with broker.faults.fail("NOT_LEADER_OR_FOLLOWER", api="Fetch", topic="u"):
        peer.request(ApiKey.FETCH, 12, bytes(fetch.encode_request(12, request)))
        answer = fetch.decode_response(12, peer.answer(ApiKey.FETCH, 12)[1])
    assert [(t.name, t.partitions[0].error_code) for t in answer.topics] == [("u", ErrorCode.NOT_LEADER_OR_FOLLOWER)]


@THREAD
def test_errors_of_the_session_itself(broker: EmbeddedBroker, peer: Peer) -> None:
    with broker.faults.fail("FETCH_SESSION_ID_NOT_FOUND", api="Fetch"):
        peer.request(ApiKey.FETCH, 12, fetch_body(0, 0))
        answer = fetch.decode_response(12, peer.answer(ApiKey.FETCH, 12)[1])
    assert (answer.error_code, answer.topics) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, [])


@THREAD
def test_one_topic_of_the_metadata_of_all_fails(broker: EmbeddedBroker, peer: Peer) -> None:
    with broker.faults.fail("LEADER_NOT_AVAILABLE", api="Metadata", topic="u"):
        body = apis.encode_request(apis.request(ApiKey.METADATA, 12, topics=None), 12)
        peer.request(ApiKey.METADATA, 12, bytes(body))
        answer = apis.decode_response(ApiKey.METADATA, 12, peer.answer(ApiKey.METADATA, 12)[1])
    told = {topic.name: (topic.error_code, len(topic.partitions)) for topic in answer.topics}
    assert told == {"t": (0, 2), "u": (ErrorCode.LEADER_NOT_AVAILABLE, 0)}


@THREAD
def test_an_error_without_a_topic_comes_on_top(broker: EmbeddedBroker, peer: Peer) -> None:
    with broker.faults.fail("COORDINATOR_LOAD_IN_PROGRESS", api="Heartbeat"):
        fields = {"group_id": "g", "generation_id": 1, "member_id": "m"}
        body = apis.encode_request(apis.request(ApiKey.HEARTBEAT, 4, **fields), 4)
        peer.request(ApiKey.HEARTBEAT, 4, bytes(body))
        answer = apis.decode_response(ApiKey.HEARTBEAT, 4, peer.answer(ApiKey.HEARTBEAT, 4)[1])
    assert answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


@THREAD
def test_malformed_bytes_behind_a_delay_end_their_connection(broker: EmbeddedBroker, peer: Peer) -> None:
    with broker.faults.delay(1, api="Produce"):
        peer.request(ApiKey.PRODUCE, 9, b"rubbish")
        assert peer.is_closed()

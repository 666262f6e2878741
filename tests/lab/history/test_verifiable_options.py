"""Command lines of the verifiable clients that cannot be used, and what a failed run tells a person."""

from __future__ import annotations

import argparse
from typing import Any

import pytest
from confluent_kafka import KafkaError

from sparkonce.jobs.verifiable import consumer as verifiable_consumer
from sparkonce.jobs.verifiable import producer as verifiable_producer
from sparkonce.jobs.verifiable.client import EventWriter, Stop, VerifiableError
from sparkonce.jobs.verifiable.producer import VerifiableProducer, add_arguments

TO_TOPIC = ["--bootstrap-servers", "127.0.0.1:1", "--topic", "t"]


@pytest.mark.parametrize("text", ["-2", "many", "1.5"])
def test_only_minus_one_means_without_end(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        verifiable_producer.main([*TO_TOPIC, "--max-messages", text])
    assert ended.value.code == 2
    assert f"{text!r} is not a whole number, zero or above, or -1 for no end" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["-1", "0", "7"])
def test_a_number_of_messages_is_taken(text: str) -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    assert parser.parse_args([*TO_TOPIC, "--max-messages", text]).max_messages == int(text)


def test_what_is_no_partition_is_told_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    for text in ("x", "0,", "0,-1"):
        with pytest.raises(SystemExit) as ended:
            verifiable_consumer.main([*TO_TOPIC, f"--assign={text}"])
        assert ended.value.code == 2
        told = capsys.readouterr().err
        assert "argument --assign: " in told
        assert "give partitions such as 0,1, or no value for all" in told


def test_aborts_without_transactions_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert verifiable_producer.main([*TO_TOPIC, "--max-messages", "0", "--abort-every", "2"]) == 2
    assert "error: --abort-every aborts transactions: give --transactional-id" in capsys.readouterr().err


class RefusingClient:
    """A producer of librdkafka whose every record the brokers refuse."""

    def __init__(self, settings: object) -> None:
        self._handlers: list[object] = []

    def produce(self, topic: str, value: str, key: object, on_delivery: object) -> None:
        self._handlers.append(on_delivery)

    def poll(self, wait_s: float) -> None:
        for handler in self._handlers:
            handler(KafkaError(KafkaError.TOPIC_EXCEPTION), None)  # type: ignore[operator]
        self._handlers.clear()

    def flush(self, wait_s: float) -> int:
        return len(self._handlers)


class UnreachableClient(RefusingClient):
    """A producer of librdkafka that reaches no broker: its records wait until they are purged."""

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__(settings)
        settings["error_cb"](KafkaError(KafkaError._ALL_BROKERS_DOWN))

    def poll(self, wait_s: float) -> None:
        pass

    def purge(self) -> None:
        super().poll(0)


def test_a_run_that_reaches_no_broker_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verifiable_producer, "Producer", UnreachableClient)
    monkeypatch.setattr(verifiable_producer, "FIRST_ANSWER_S", 0.0)
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    options = parser.parse_args([*TO_TOPIC, "--max-messages", "2"])
    producer = VerifiableProducer(options, {"bootstrap.servers": "127.0.0.1:1"}, EventWriter("p"), Stop())
    with pytest.raises(VerifiableError, match="no broker has answered within 0 s") as error:
        producer.run()
    assert producer.watch.explain(str(error.value)).endswith("; no broker answers at 127.0.0.1:1")


def test_a_run_whose_records_are_refused_says_why(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(verifiable_producer, "Producer", RefusingClient)
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    options = parser.parse_args(["--topic", "a b", "--max-messages", "2"])
    producer = VerifiableProducer(options, {"bootstrap.servers": "nowhere:1"}, EventWriter("p"), Stop())
    assert not producer.run()
    told = capsys.readouterr()
    assert told.err.splitlines() == [
        "error: 0 of 2 records that were sent were acknowledged; the first error: Broker: Invalid topic"
    ]
    assert told.out.count("producer_send_error") == 2

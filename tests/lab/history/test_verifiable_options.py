"""Command lines of the verifiable clients that cannot be used, and what a failed run tells a person."""

from __future__ import annotations

import argparse
from itertools import count
from pathlib import Path

import pytest
from kafka.errors import KafkaConnectionError
from kafka.net import KafkaNetClient

from sparkonce import EmbeddedBroker
from sparkonce.jobs.verifiable import consumer as verifiable_consumer
from sparkonce.jobs.verifiable import producer as verifiable_producer
from sparkonce.jobs.verifiable.client import EventWriter, Stop, VerifiableError
from sparkonce.jobs.verifiable.producer import VerifiableProducer, add_arguments
from tests.cases import each_case

REFUSED = "[Errno 111] Connection refused"
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


def test_a_run_that_reaches_no_broker_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verifiable_producer, "FIRST_ANSWER_S", 0.2)
    producer = make_producer("127.0.0.1:1", "t")
    with pytest.raises(VerifiableError, match="no broker has answered within 0 s") as error:
        producer.run()
    assert producer.watch.explain(str(error.value)).endswith("; no broker answers at 127.0.0.1:1: " + REFUSED)


def test_a_run_whose_records_are_refused_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    with EmbeddedBroker() as broker:
        assert not make_producer(broker.bootstrap_servers, "a b").run()
    told = capsys.readouterr()
    assert told.err.startswith("error: 0 of 2 records that were sent were acknowledged; the first error: ")
    assert "a b" in told.err
    assert told.out.count("producer_send_error") == 2


@each_case("refused", range(8))
def test_no_request_of_a_transaction_is_lost_when_a_broker_is_not_ready(
    refused: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, await_ready = count(), KafkaNetClient.await_ready

    def failing(client: KafkaNetClient, *given: object, **named: object) -> bool:
        if next(calls) == refused:
            raise KafkaConnectionError("not ready")
        return await_ready(client, *given, **named)

    with monkeypatch.context() as patch, EmbeddedBroker() as broker:
        patch.setattr(KafkaNetClient, "await_ready", failing)
        assert make_producer(broker.bootstrap_servers, "t", "--transactional-id", "x", "--timeout", "20").run()


def make_producer(servers: str, topic: str, *more: str) -> VerifiableProducer:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    given = ["--bootstrap-servers", servers, "--topic", topic, "--max-messages", "2", *more]
    options = parser.parse_args(given)
    return VerifiableProducer(options, verifiable_producer._settings(options), EventWriter("p"), Stop())


def test_settings_are_read_as_their_types(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file may serve both clients. What neither knows, or has another type, is refused by its name alone."""
    config = tmp_path / "client.properties"
    config.write_text("linger.ms=5\nacks=all\ncompression.type=none\nssl.ca.location=/ca\nsession.timeout.ms=9\n")
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    settings = verifiable_producer._settings(parser.parse_args([*TO_TOPIC, "--command-config", str(config)]))
    read = {"linger_ms": 5, "acks": "all", "compression_type": None, "ssl_cafile": "/ca", "enable_idempotence": True}
    assert read.items() <= settings.items()
    assert "session_timeout_ms" not in settings
    for line in ("linger.ms=s3cret", "enable.idempotence=s3cret", "partitioner=s3cret", "s3cret.of=s3cret"):
        config.write_text(line)
        assert verifiable_producer.main([*TO_TOPIC, "--command-config", str(config)]) == 2
        told = capsys.readouterr().err
        assert told.startswith(f"error: {line.partition('=')[0]} is ")
        assert told.count("s3cret") == line.count("s3cret.of")

"""Clients of all kinds that work on a cluster under fire, and the verdict on what they and final readers saw."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Final

from lab.history import Verdict, judge, read_history
from tests.interop.verifiable_clients import Client

TOPIC: Final = "t"
PARTITIONS: Final = 3


class Clients:
    """An idempotent and a transactional producer, some of whose transactions are aborted on purpose, and consumers.

    Two are members of a group, another one reads only what is committed. `transactional` are more words for the
    producer in transactions.
    """

    def __init__(self, servers: str, folder: Path, stack: ExitStack, *transactional: str) -> None:
        self._servers, self._folder, self._stack = servers, folder, stack
        self._all: list[Client] = []
        self._producers = [
            self._producer("plain", "--throughput", "500"),
            self._producer(
                "transactions", "--transactional-id", "x", "--abort-every", "5", "--throughput", "200", *transactional
            ),
        ]
        self._consumers = [self._consumer(name, "--group-id", "g") for name in ("first", "second")]
        self._consumers.append(self._consumer("committed", "--group-id", "c", "--isolation-level", "read_committed"))

    @property
    def acknowledged(self) -> int:
        """Records of both producers that are acknowledged by now."""
        return sum(map(_acknowledged, self._producers))

    def wait_for_progress(self, records: int) -> None:
        """Wait until so many more records of each producer are acknowledged."""
        for producer in self._producers:
            producer.wait_for("producer_send_success", _acknowledged(producer) + records)

    def judge(self) -> Verdict:
        """Stop them, read all that is there, and judge; every record must have been acknowledged in the end."""
        for producer in self._producers:
            assert producer.stop() == 0, producer.errors.decode()
        for isolation in ("read_uncommitted", "read_committed"):
            final = self._consumer(isolation, "--assign", "--final", "--isolation-level", isolation, "--timeout", "100")
            assert final.wait() == 0, final.errors.decode()
        for consumer in self._consumers:
            assert consumer.stop() == 0, consumer.errors.decode()
        return judge(read_history([each.file for each in self._all]))

    def _producer(self, name: str, *more: str) -> Client:
        return self._start("verifiable_producer", name, "--value-prefix", name, "--repeating-keys", "17", *more)

    def _consumer(self, name: str, *more: str) -> Client:
        return self._start("verifiable_consumer", name, "--verbose", *more)

    def _start(self, module: str, name: str, *more: str) -> Client:
        arguments = ["--bootstrap-servers", self._servers, "--topic", TOPIC, *more]
        self._all.append(self._stack.enter_context(Client(module, self._folder / f"{name}.jsonl", *arguments)))
        return self._all[-1]


def _acknowledged(producer: Client) -> int:
    return producer.counts.get("producer_send_success", 0)

"""A broker of a script that fetches nothing by itself: what it asks its leader, the test says."""

from __future__ import annotations

from typing import Any, Final

import pytest

from sparkonce.broker_lite.node.fetch_sessions import next_epoch
from sparkonce.broker_lite.server.replica_fetcher import LeaderFetcher
from sparkonce.kafka.protocol import fetch, produce
from sparkonce.kafka.protocol.apis import ApiKey
from sparkonce.kafka.protocol.errors import ErrorCode
from sparkonce.kafka.protocol.fetch import FetchPartition
from sparkonce.kafka.protocol.primitives import ZERO_UUID
from sparkonce.kafka.protocol.records import Record, encode_batch
from tests.unit.broker.script import Call, Script, error_of

TOPIC: Final = "q"
"""Not one whose records are judged: a test may say that its follower has what it has not."""
VERSION: Final = 18
WAIT_MS: Final = 500
SILENT: Final = 2
"""The broker that fetches nothing by itself."""


def silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let broker 2 fetch nothing by itself; it is a member of its cluster for the rest."""
    follow = LeaderFetcher.follow

    def follow_unless_silent(self: LeaderFetcher, *role: object) -> None:
        if self._member.broker_id != SILENT:
            follow(self, *role)  # type: ignore[arg-type]

    monkeypatch.setattr(LeaderFetcher, "follow", follow_unless_silent)


def fetch_request(
    script: Script, partitions: list[FetchPartition], *, replica_id: int = SILENT, **fields: Any
) -> fetch.FetchRequest:
    """Return a fetch of partitions of the topic, by a replica or, with -1, a consumer."""
    topics = [fetch.FetchTopic("", script.image.topic_ids[TOPIC], partitions)] if partitions else []
    epoch = script.image.broker_epoch(replica_id) if replica_id >= 0 else -1
    return fetch.FetchRequest(
        fields.pop("max_wait_ms", WAIT_MS), 1, 1 << 20, topics, replica_id=replica_id, replica_epoch=epoch, **fields
    )


def send_fetch(script: Script, wanted: fetch.FetchRequest) -> Call:
    """Send a fetch to broker 1, which leads."""
    return script.send_bytes(1, ApiKey.FETCH, VERSION, fetch.encode_request(VERSION, wanted))


def append(script: Script, index: int = 0) -> None:
    """Let a producer write a record to a partition of the topic, and the followers that fetch have it."""
    batch = encode_batch([Record(None, b"v", script.brokers[1].now_ms())])
    wanted = produce.ProduceTopic(TOPIC, ZERO_UUID, [produce.ProducePartition(index, batch)])
    body = produce.encode_request(9, produce.ProduceRequest(None, 1, 1_000, [wanted]))
    assert error_of(script.answer(script.send_bytes(1, ApiKey.PRODUCE, 9, body))) is ErrorCode.NONE
    script.pass_time()


class Follower:
    """Broker 2, which fetches both partitions of the topic from broker 1, in a session."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.session_id = self.epoch = 0
        self.call: Call | None = None

    def fetch(self, *partitions: FetchPartition) -> None:
        """Ask for partitions, or for all of the session."""
        script = self.script
        wanted = fetch_request(script, list(partitions), session_id=self.session_id, session_epoch=self.epoch)
        self.call = send_fetch(script, wanted)
        script.pass_time()

    @property
    def waits(self) -> bool:
        """Whether what it has asked is not answered yet."""
        return self.call is not None and self.call.answer is None

    def told(self) -> dict[int, tuple[int, int]]:
        """Return the high watermark and the start of what the last answer tells of, by partition."""
        assert self.call is not None
        answer: fetch.FetchResponse = self.call.answer
        self.session_id, self.epoch = answer.session_id, next_epoch(self.epoch)
        self.call = None
        assert answer.error_code == 0
        return {
            each.partition: (each.high_watermark, each.log_start_offset) for t in answer.topics for each in t.partitions
        }

    def idle(self, times: int) -> None:
        """Ask for all of the session so many times, as long as each takes."""
        for _ in range(times):
            self.fetch()
            self.script.pass_time(WAIT_MS)
            self.told()

"""A client without any permission, which also sends malformed requests.

In seeds that have one, brokers have a second listener, on which clients authenticate, and no access control lists: only
super users may do anything, and all others, who use the first listener, are super users. So any response to this client
but an authorization error is a violation (`authorized`). A malformed request must end its own connection, and nothing
else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from lab.sim.clients.client import Client, ClientConnection, UnreachableError
from lab.sim.machine.settings import FIRST_PORT, INTRUDER
from sparkonce.broker_lite.replication.invariants import ViolationError
from sparkonce.kafka.protocol import apis, fetch, produce
from sparkonce.kafka.protocol.apis import ApiKey
from sparkonce.kafka.protocol.errors import ErrorCode
from sparkonce.kafka.protocol.primitives import ZERO_UUID
from sparkonce.kafka.protocol.records import Record, encode_batch

if TYPE_CHECKING:
    pass

_REFUSALS: Final = (
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)
_ALSO: Final = {ApiKey.DELETE_GROUPS: (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)}
"""Allowed instead of an authorization error if a coordinator is lost while the response about other groups waits."""
_PAUSE_MS: Final = 120
_MOST_BYTES: Final = 60
_HEADER_BYTES: Final = 14
"""A frame's size, API, version and correlation id, and a null client id."""
_TOPIC: Final = 2
"""The resource type of topics."""


class Intruder(Client):
    """Sends requests without permission until the world ends."""

    port = FIRST_PORT + 1

    async def greet(self, connection: ClientConnection) -> None:
        """Authenticate."""
        for api_key, fields in (
            (ApiKey.SASL_HANDSHAKE, {"mechanism": "PLAIN"}),
            (ApiKey.SASL_AUTHENTICATE, {"auth_bytes": f"\0{INTRUDER}\0{INTRUDER}".encode()}),
        ):
            body = apis.encode_request(apis.request(api_key, 1, **fields), 1)
            try:
                async with asyncio.timeout(self.timeout_ms / 1000):
                    answer = apis.decode_response(api_key, 1, await connection.request(api_key, 1, body))
            except TimeoutError:
                connection.close()
                raise UnreachableError("no answer in time") from None
            if answer.error_code:
                self.world.violated(ViolationError("authorized", f"{answer.error_message} to {api_key.name}"))

    def begin(self) -> None:
        """Begin."""
        self.run(self._work())

    async def _work(self) -> None:
        while True:
            await self.pause(int(self.rng.random() * _PAUSE_MS))
            try:
                if self.rng.random() < 0.25:
                    await self._send_rubbish()
                else:
                    await self._trespass()
            except UnreachableError:
                self._leaders.clear()
                self._coordinators.clear()

    async def _send_rubbish(self) -> None:
        """Send bytes that are no request, or half of one, then close the connection."""
        connection = await self.connection(self.some_broker())
        size = self.rng.randrange(1, _MOST_BYTES)
        data = bytearray(self.rng.randbytes(size))
        if self.rng.random() < 0.7:  # a frame with a valid size and a valid API key
            data[:4] = (max(size - 4, 0)).to_bytes(4, "big")
            data[4:8] = bytes((0, self.rng.choice(list(ApiKey)) & 0xFF, 0, self.rng.randrange(8)))
            if size >= _HEADER_BYTES:  # valid, so that what follows reaches the handler
                data[_HEADER_BYTES - 2 : _HEADER_BYTES] = b"\xff\xff"
        connection.sends_rubbish = True
        connection.send(data)
        await self.pause(20)
        connection.close()

    async def _trespass(self) -> None:
        topic = self.rng.choice(self.world.places)[0]
        if self.rng.random() < 0.2:
            await self._read_or_write(topic)
            return
        api_key, version, fields = self.rng.choice(list(self._requests(topic)))
        answer = await self.ask(self.some_broker(), api_key, version, **fields)
        self._judge(api_key, list(_codes(answer)))

    async def _read_or_write(self, topic: str) -> None:
        if self.rng.random() < 0.5:
            batch = bytes(encode_batch([Record(None, b"intruder", self.now_ms())]))
            written = produce.ProduceTopic(topic, ZERO_UUID, [produce.ProducePartition(0, batch)])
            body = produce.encode_request(9, produce.ProduceRequest(None, 1, 500, [written]))
            told = produce.decode_response(9, await self.exchange(self.some_broker(), ApiKey.PRODUCE, 9, body))
            self._judge(ApiKey.PRODUCE, [each.error_code for found in told.topics for each in found.partitions])
            return
        wanted = fetch.FetchTopic(topic, ZERO_UUID, [fetch.FetchPartition(0, 0, 1_000)])
        body = fetch.encode_request(12, fetch.FetchRequest(0, 0, 1_000, [wanted]))
        answer = fetch.decode_response(12, await self.exchange(self.some_broker(), ApiKey.FETCH, 12, body))
        self._judge(ApiKey.FETCH, [each.error_code for found in answer.topics for each in found.partitions])

    def _requests(self, topic: str) -> Iterator[tuple[ApiKey, int, dict[str, Any]]]:
        """Return requests that need permissions."""
        group, name, producer = "g", "a", {"producer_id": self.rng.randrange(4), "producer_epoch": 0}
        offsets = [(topic, [(0, 5, -1, "")])]
        yield ApiKey.OFFSET_COMMIT, 6, {
            "group_id": group, "generation_id_or_member_epoch": -1, "member_id": "", "topics": offsets,
        }  # fmt: skip
        yield ApiKey.OFFSET_FETCH, 7, {"group_id": group, "topics": [(topic, [0])], "require_stable": False}
        yield ApiKey.TXN_OFFSET_COMMIT, 3, {
            "transactional_id": name, "group_id": group, **producer, "generation_id": -1, "member_id": "",
            "group_instance_id": None, "topics": offsets,
        }  # fmt: skip
        yield ApiKey.END_TXN, 3, {"transactional_id": name, **producer, "committed": True}
        yield ApiKey.INIT_PRODUCER_ID, 4, {
            "transactional_id": name, "transaction_timeout_ms": 1_000, "producer_id": -1, "producer_epoch": -1,
        }  # fmt: skip
        yield ApiKey.ADD_OFFSETS_TO_TXN, 3, {"transactional_id": name, **producer, "group_id": group}
        yield ApiKey.DELETE_RECORDS, 1, {"topics": [(topic, [(0, -1)])], "timeout_ms": 500}
        yield ApiKey.DELETE_TOPICS, 4, {"topic_names": [topic], "timeout_ms": 500}
        yield ApiKey.CREATE_TOPICS, 5, {
            "topics": [("intruders", 1, 1, [], [])], "timeout_ms": 500, "validate_only": False,
        }  # fmt: skip
        yield ApiKey.CREATE_PARTITIONS, 2, {
            "topics": [(topic, 9, None)], "timeout_ms": 500, "validate_only": False,
        }  # fmt: skip
        yield ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {
            "resources": [(_TOPIC, topic, [("retention.ms", 0, "1")])], "validate_only": False,
        }  # fmt: skip
        yield ApiKey.HEARTBEAT, 3, {
            "group_id": group, "generation_id": 1, "member_id": "m", "group_instance_id": None,
        }  # fmt: skip
        yield ApiKey.DELETE_GROUPS, 1, {"groups_names": [group]}
        yield ApiKey.ELECT_LEADERS, 2, {
            "election_type": 0, "topic_partitions": [(topic, [0])], "timeout_ms": 500,
        }  # fmt: skip
        yield ApiKey.WRITE_TXN_MARKERS, 1, {"markers": [(producer["producer_id"], 0, False, [(topic, [0])], 0)]}

    def _judge(self, api_key: ApiKey, codes: list[int]) -> None:
        also = _ALSO.get(api_key, ())
        wrong = [ErrorCode.of(code).name for code in codes if code not in (*_REFUSALS, *also)]
        if wrong:
            text = f"a client that may do nothing asks for {api_key.name}, and hears {wrong[0]}"
            self.world.violated(ViolationError("authorized", text))


def _codes(answer: Any) -> Iterator[int]:
    """Return the error codes of a response's innermost parts."""
    found = False
    for name in (
        "topics",
        "groups",
        "responses",
        "results",
        "markers",
        "partitions",
        "partition_result",
        "replica_election_results",
    ):
        for each in getattr(answer, name, None) or ():
            found = True
            yield from _codes(each)
    if not found and hasattr(answer, "error_code"):
        yield answer.error_code

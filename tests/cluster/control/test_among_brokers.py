"""What brokers ask the controller, byte by byte; who may join; and what a broker in no cluster makes of it."""

from __future__ import annotations

import random
import shutil
import socket
import struct
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sparkonce import BrokerStartError, EmbeddedBroker, EmbeddedCluster
from sparkonce.broker_lite.controller.records import NO_BROKER_EPOCH
from sparkonce.broker_lite.log.checkpoints import BROKER_EPOCH
from sparkonce.kafka.protocol import apis
from sparkonce.kafka.protocol.apis import AMONG_BROKERS, ApiKey
from sparkonce.kafka.protocol.errors import ErrorCode
from sparkonce.kafka.protocol.frames import encode_request_header
from sparkonce.kafka.protocol.limits import MAX_GENERIC_REQUEST_BYTES
from tests.cluster.control.clients import admin, create
from tests.fuzz import corpus
from tests.interop.plain_client import PlainClient

REQUESTS: dict[ApiKey, dict[str, Any]] = {
    ApiKey.BROKER_HEARTBEAT: {"broker_id": 9, "broker_epoch": 0, "current_metadata_offset": 0, "want_fence": False,
                              "want_shut_down": False},
    ApiKey.ALTER_PARTITION: {"broker_id": 9, "broker_epoch": 0, "topics": []},
    ApiKey.ALLOCATE_PRODUCER_IDS: {"broker_id": 9, "broker_epoch": 0},
    ApiKey.BROKER_REGISTRATION: {"broker_id": 9, "cluster_id": "x", "incarnation_id": uuid.UUID(int=1),
                                 "listeners": [("PLAINTEXT", "127.0.0.1", 1, 0, {})], "features": [], "rack": None},
    ApiKey.ENVELOPE: {"request_data": b"", "request_principal": None, "client_host_address": bytes(4)},
}  # fmt: skip

PATIENCE_S = 20.0

USERS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="a";'


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=2) as cluster:
        yield cluster


@pytest.fixture
def controller(cluster: EmbeddedCluster) -> Iterator[PlainClient]:
    with PlainClient(cluster.brokers[cluster.controller_id].bootstrap_servers) as client:
        yield client


def version_of(key: ApiKey) -> int:
    return min(apis.APIS[key].max_version, 2)


@pytest.mark.parametrize("key", sorted(AMONG_BROKERS))
def test_a_broker_in_no_cluster_ends_the_connection(key: ApiKey) -> None:
    with EmbeddedBroker() as broker, PlainClient(broker.bootstrap_servers) as client:
        version = version_of(key)
        client.send(key, version, apis.encode_request(apis.request(key, version, **REQUESTS[key]), version))
        with pytest.raises((ConnectionError, struct.error), match=r"unpack|reset"):
            client.receive(key, version)


@pytest.mark.parametrize("key", sorted(AMONG_BROKERS - {ApiKey.BROKER_REGISTRATION}))
def test_only_the_controller_answers(cluster: EmbeddedCluster, key: ApiKey) -> None:
    other = next(each for each in cluster.brokers if each != cluster.controller_id)
    with PlainClient(cluster.brokers[other].bootstrap_servers) as client:
        assert client.ask(key, version_of(key), **REQUESTS[key]).error_code == ErrorCode.NOT_CONTROLLER


@pytest.mark.parametrize("key", [ApiKey.BROKER_HEARTBEAT, ApiKey.ALTER_PARTITION, ApiKey.ALLOCATE_PRODUCER_IDS])
def test_a_broker_that_is_not_registered_is_told_so(controller: PlainClient, key: ApiKey) -> None:
    answer = controller.ask(key, version_of(key), **REQUESTS[key])
    assert answer.error_code == ErrorCode.STALE_BROKER_EPOCH


def test_registrations_that_cannot_be_taken(controller: PlainClient) -> None:
    wanted = REQUESTS[ApiKey.BROKER_REGISTRATION]
    answer = controller.ask(ApiKey.BROKER_REGISTRATION, 0, **wanted)
    assert answer.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
    answer = controller.ask(ApiKey.BROKER_REGISTRATION, 0, **wanted | {"listeners": []})
    assert answer.error_code == ErrorCode.INVALID_REGISTRATION


def test_nobody_registers_under_the_id_of_a_broker_that_is_alive(
    cluster: EmbeddedCluster, controller: PlainClient
) -> None:
    before = {each: cluster.image().brokers[each] for each in cluster.brokers}
    cluster_id = admin(cluster.bootstrap_servers).list_topics(timeout=PATIENCE_S).cluster_id
    wanted = REQUESTS[ApiKey.BROKER_REGISTRATION] | {"cluster_id": cluster_id}
    for broker_id in cluster.brokers:
        answer = controller.ask(ApiKey.BROKER_REGISTRATION, 0, **wanted | {"broker_id": broker_id})
        assert answer.error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
        assert answer.broker_epoch == NO_BROKER_EPOCH
    assert {each: cluster.image().brokers[each] for each in cluster.brokers} == before
    assert not any(each.fenced for each in before.values())


def test_blocks_of_producer_ids_are_given_out_once(cluster: EmbeddedCluster, controller: PlainClient) -> None:
    starts = []
    for broker_id in (1, 2, 1):
        epoch = cluster.image().broker_epoch(broker_id)
        answer = controller.ask(ApiKey.ALLOCATE_PRODUCER_IDS, 0, broker_id=broker_id, broker_epoch=epoch)
        assert (answer.error_code, answer.producer_id_len) == (0, 1000)
        starts.append(answer.producer_id_start)
    assert starts == [starts[0], starts[0] + 1000, starts[0] + 2000]


def test_who_is_in_sync_is_changed_by_the_leader_only(cluster: EmbeddedCluster, controller: PlainClient) -> None:
    create(admin(cluster.bootstrap_servers), "in-sync", partitions=1, factor=2)
    cluster.wait_in_sync()
    state, image = cluster.state("in-sync", 0), cluster.image()
    follower = next(each for each in (1, 2) if each != state.leader)

    def alter(broker_id: int, partition_epoch: int, in_sync: list[int]) -> Any:
        partition = (0, state.leader_epoch, in_sync, 0, partition_epoch, {})
        answer = controller.ask(
            ApiKey.ALTER_PARTITION, 2, broker_id=broker_id, broker_epoch=image.broker_epoch(broker_id),
            topics=[(image.topic_ids["in-sync"], [partition], {})],
        )  # fmt: skip
        return answer.topics[0].partitions[0]

    assert alter(follower, state.partition_epoch, [1, 2]).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert alter(state.leader, state.partition_epoch - 1, [1, 2]).error_code == ErrorCode.INVALID_UPDATE_VERSION
    found = alter(state.leader, state.partition_epoch, [state.leader])
    assert (found.error_code, found.isr, found.leader_id) == (0, [state.leader], state.leader)
    cluster.wait_in_sync()  # the follower is caught up, so its leader takes it in again


@pytest.mark.parametrize(
    "wrong",
    [
        {"request_data": b""},
        {"request_data": bytes(20)},
        {"request_data": bytes(encode_request_header(ApiKey.API_VERSIONS, 0, 1, "x"))},
        {"request_data": bytes(encode_request_header(ApiKey.CREATE_TOPICS, 7, 1, "x")) + b"\xff" * 50},
        {"request_data": bytes(encode_request_header(ApiKey.CREATE_TOPICS, 99, 1, "x"))},
        {"request_principal": b"\xff"},
        {"client_host_address": b"1"},
    ],
)
def test_envelopes_hold_what_only_the_controller_can_do(controller: PlainClient, wrong: dict[str, bytes]) -> None:
    """What is wrong with one is said, and the connection, which carries other requests of that broker, goes on."""
    good = {"request_data": bytes(encode_request_header(ApiKey.DELETE_TOPICS, 1, 1, "x")) + bytes(8)}
    for fields, expected in ((wrong, ErrorCode.INVALID_REQUEST), (good, ErrorCode.NONE)):
        answer = controller.ask(ApiKey.ENVELOPE, 0, **REQUESTS[ApiKey.ENVELOPE] | good | fields)
        assert (answer.error_code, answer.response_data is None) == (expected, expected is not ErrorCode.NONE)


@pytest.mark.parametrize(
    "body", [pytest.param(b"\xff" * 50, id="rubbish"), pytest.param(bytes(MAX_GENERIC_REQUEST_BYTES), id="too-long")]
)
def test_what_a_client_sends_wrong_ends_its_own_connection_and_no_brokers(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture, body: bytes
) -> None:
    """Through a broker that would send it on: the controller ends a connection for such, and it was sent again."""
    other = next(each for each in cluster.brokers if each != cluster.controller_id)
    host, port = cluster.brokers[other].bootstrap_servers.split(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as client:
        frame = bytes(encode_request_header(ApiKey.DELETE_TOPICS, 1, 1, "x")) + body
        client.sendall(struct.pack(">i", len(frame)) + frame)
        assert client.recv(1) == b""
    lines = [each.getMessage() for each in caplog.records if "closing connection" in each.getMessage()]
    assert len(lines) == 1
    assert other in cluster.alive


def test_a_client_id_of_any_script_is_sent_on(cluster: EmbeddedCluster) -> None:
    """As part of the request among brokers, where its bytes could be a number of any length."""
    other = next(each for each in cluster.brokers if each != cluster.controller_id)
    host, port = cluster.brokers[other].bootstrap_servers.split(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as client:
        frame = bytes(encode_request_header(ApiKey.DELETE_TOPICS, 1, 1, "\u00ff" * 10_000)) + bytes(8)
        client.sendall(struct.pack(">i", len(frame)) + frame)
        assert client.recv(1) == b"\0"


def test_who_cannot_join(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    shared = {"metadata.log.dir": str(cluster.data_dir / "metadata")}
    with pytest.raises(BrokerStartError, match=r"a broker with node\.id=1 runs in the cluster of .*give each its own"):
        EmbeddedBroker(data_dir=tmp_path / "a", config={**shared, "node.id": 1})
    with pytest.raises(BrokerStartError, match=r"is that of cluster\.id=.*use that, or another directory"):
        EmbeddedBroker(data_dir=tmp_path / "b", config={**shared, "node.id": 7, "cluster.id": "another"})
    with EmbeddedBroker(data_dir=tmp_path / "c", config={"node.id": 8}):
        pass
    with pytest.raises(BrokerStartError, match=r"belongs to cluster\.id="):
        EmbeddedBroker(data_dir=tmp_path / "c", config={**shared, "node.id": 8})
    only_sasl = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": USERS,
    }
    with pytest.raises(BrokerStartError, match="need a PLAINTEXT listener among themselves: add one"):
        EmbeddedBroker(data_dir=tmp_path / "e", config={**shared, **only_sasl, "node.id": 6})
    between = {"listeners": "A://127.0.0.1:0", "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT"}
    with EmbeddedBroker(data_dir=tmp_path / "d", config={**shared, **between, "node.id": 5}):
        cluster.wait_until(lambda: 5 in cluster.alive, "broker 5 is not alive")
    cluster.wait_until(lambda: 5 not in cluster.alive, "broker 5 is alive")


def test_clients_hear_of_the_listener_that_they_use() -> None:
    config = {
        "listeners": "A://127.0.0.1:0,B://127.0.0.1:0",
        "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT",
        "inter.broker.listener.name": "B",
    }
    with EmbeddedCluster(brokers=2, config=config) as cluster:
        create(admin(cluster.bootstrap_servers), "t", partitions=1, factor=2)
        cluster.wait_in_sync()
        for name in ("A", "B"):
            with PlainClient(cluster.brokers[1].listeners[name]) as client:
                answer = client.ask(ApiKey.METADATA, 9, topics=None)
            told = {each.node_id: f"{each.host}:{each.port}" for each in answer.brokers}
            assert told == {broker_id: broker.listeners[name] for broker_id, broker in cluster.brokers.items()}


@pytest.mark.parametrize("seed", range(3))
def test_requests_that_are_damaged_are_answered_or_refused(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    rng = random.Random(seed)
    print(f"seed {seed}")
    kinds = [apis.APIS[key] for key in sorted(AMONG_BROKERS)]
    answered = refused = 0
    with EmbeddedCluster(brokers=1) as cluster:
        for _ in range(60):
            for _, _, frame in corpus.frames(rng, uuid.UUID(int=rng.getrandbits(128)), kinds):
                damaged = bytearray(frame)
                for _ in range(rng.randrange(3)):
                    damaged[rng.randrange(8, len(damaged))] = rng.getrandbits(8)
                with PlainClient(cluster.bootstrap_servers) as client:
                    client._socket.sendall(struct.pack(">i", len(damaged)) + damaged)
                    size = client._file.read(4)
                    answered, refused = answered + bool(size), refused + (not size)
        with PlainClient(cluster.bootstrap_servers) as client:
            assert client.ask(ApiKey.METADATA, 9, topics=None).controller_id == 1
    assert min(answered, refused) > 10
    assert "this is a mistake of the broker's" not in caplog.text


@pytest.fixture
def briefly_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a broker conclude sooner that the log lacks what it knew."""
    monkeypatch.setattr("sparkonce.broker_lite.cluster.lifecycle.BEHIND_MS", 100)


@pytest.mark.usefixtures("briefly_behind")
@pytest.mark.parametrize("copied", ["never", "before its last start", "after its last start"])
def test_a_broker_does_not_join_a_cluster_that_has_lost_decisions(tmp_path: Path, copied: str) -> None:
    """Its topics would be put aside as deleted ones, and their records would be gone for clients."""
    data, metadata, older, latest = (tmp_path / each for each in ("data", "metadata", "older", "latest"))
    config = {"node.id": 1, "metadata.log.dir": str(metadata), "cluster.id": "it"}
    with EmbeddedBroker(data, config=config):
        if copied == "before its last start":
            shutil.copytree(metadata, older)
    with EmbeddedBroker(data, config=config) as broker:
        if copied == "after its last start":
            shutil.copytree(metadata, older)
        create(admin(broker.bootstrap_servers), "t", partitions=1, factor=1)
    metadata.rename(latest)
    if older.exists():
        older.rename(metadata)
    for _ in range(2):  # it makes the log longer, each time
        with pytest.raises(BrokerStartError, match=r"has gone back: .* restore the cluster's latest metadata"):
            EmbeddedBroker(data, config=config)
    assert not list(data.glob("*-stray"))
    shutil.rmtree(metadata)
    latest.rename(metadata)
    with EmbeddedBroker(data, config=config) as broker:
        assert "t" in admin(broker.bootstrap_servers).list_topics(timeout=PATIENCE_S).topics


@pytest.mark.usefixtures("briefly_behind")
def test_a_broker_that_goes_on_without_what_is_lost_may_be_killed_right_then(tmp_path: Path) -> None:
    data, killed = tmp_path / "data", tmp_path / "killed"
    config = {"node.id": 1, "metadata.log.dir": str(tmp_path / "metadata"), "cluster.id": "it"}
    with EmbeddedBroker(data, config=config):
        pass
    shutil.rmtree(tmp_path / "metadata")
    with pytest.raises(BrokerStartError, match="has gone back"):
        EmbeddedBroker(data, config=config)
    (data / BROKER_EPOCH).write_text("-1")
    with EmbeddedBroker(data, config=config):
        shutil.copytree(data, killed)
    with EmbeddedBroker(killed, config=config):
        pass

"""Listeners with TLS and SASL at the level of bytes: what is answered, what ends a connection, what the log says."""

from __future__ import annotations

import contextlib
import logging
import socket
import ssl
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sparkonce import EmbeddedBroker
from sparkonce.broker_lite.embedded import BrokerStartError
from sparkonce.broker_lite.server.limits import READ_BUFFER_BYTES
from sparkonce.kafka.protocol import apis, fetch, frames, produce
from sparkonce.kafka.protocol.apis import ApiKey
from sparkonce.kafka.protocol.errors import ErrorCode
from sparkonce.kafka.protocol.primitives import ZERO_UUID
from sparkonce.kafka.protocol.records import Record, decode_all, encode_batch
from tests.certificates import Authority

DEADLINE_S = 30.0
SECRET, WRONG = "s3cret-of-alice", "wr0ng-guess"
PLAIN_USERS = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="{SECRET}";'
SCRAM_USERS = f'org.apache.kafka.common.security.scram.ScramLoginModule required user_alice="{SECRET}";'


class Client:
    """A connection to one listener that speaks frames."""

    def __init__(self, address: str, context: ssl.SSLContext | None = None) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), DEADLINE_S)
        if context is not None:
            self.socket = context.wrap_socket(self.socket, server_hostname="localhost")
        self.file = self.socket.makefile("rb")

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()
        self.socket.close()

    def send(self, key: int, version: int, body: bytes) -> None:
        frame = bytes(frames.encode_request_header(key, version, 1, "test")) + body
        self.socket.sendall(struct.pack(">i", len(frame)) + frame)

    def receive(self, key: int, version: int) -> bytes:
        (size,) = struct.unpack(">i", self.file.read(4))
        frame = self.file.read(size)
        assert len(frame) == size
        return frame[frames.read_response_header(key, version, frame)[1] :]

    def ask(self, key: int, version: int, /, **fields: Any) -> Any:
        self.send(key, version, bytes(apis.encode_request(apis.request(key, version, **fields), version)))
        return apis.decode_response(key, version, self.receive(key, version))

    def authenticate(self, password: str = SECRET) -> Any:
        assert self.ask(ApiKey.SASL_HANDSHAKE, 1, mechanism="PLAIN").error_code == 0
        return self.ask(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=b"\0alice\0" + password.encode())

    def is_closed(self) -> bool:
        try:
            return self.file.read(1) == b""
        except ConnectionResetError:
            return True


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def broker(authority: Authority) -> Iterator[EmbeddedBroker]:
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0,STRICT://127.0.0.1:0,"
        "SASL_PLAINTEXT://127.0.0.1:0,SASL_SSL://127.0.0.1:0",
        "advertised.listeners": "SASL_SSL://localhost:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,STRICT:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,"
        "SASL_SSL:SASL_SSL",
        "ssl.keystore.location": authority.issue("broker.pem").file,
        "ssl.truststore.location": authority.file,
        "listener.name.strict.ssl.client.auth": "required",
        "listener.name.strict.ssl.enabled.protocols": "TLSv1.2",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "sasl.server.max.receive.size": 2048,
        "connection.failed.authentication.delay.ms": 1,
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": PLAIN_USERS,
        "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config": SCRAM_USERS,
        "listener.name.sasl_ssl.plain.sasl.jaas.config": PLAIN_USERS,
        "listener.name.sasl_ssl.connections.max.reauth.ms": 3_600_000,
    }
    with EmbeddedBroker(config=settings) as embedded:
        yield embedded


@pytest.fixture
def trusting(authority: Authority) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(authority.file))


def cluster(client: Client) -> str:
    said = client.ask(ApiKey.DESCRIBE_CLUSTER, 1, endpoint_type=1)
    told = client.ask(ApiKey.METADATA, 1, topics=[]).brokers[0]
    found = client.ask(ApiKey.FIND_COORDINATOR, 1, key="g", key_type=0)
    addresses = {f"{each.host}:{each.port}" for each in (said.brokers[0], told, found)}
    assert len(addresses) == 1
    return addresses.pop()


def test_each_listener_tells_its_own_address(broker: EmbeddedBroker, trusting: ssl.SSLContext) -> None:
    assert list(broker.listeners) == ["PLAINTEXT", "SSL", "STRICT", "SASL_PLAINTEXT", "SASL_SSL"]
    assert broker.bootstrap_servers == broker.listeners["PLAINTEXT"]
    assert broker.listeners["SASL_SSL"].startswith("localhost:")
    assert len({address.rpartition(":")[2] for address in broker.listeners.values()}) == 5
    for name, address in broker.listeners.items():
        if name == "STRICT":
            continue
        with Client(address, trusting if name.endswith("SSL") else None) as client:
            if name.startswith("SASL"):
                assert client.authenticate().error_code == 0
            assert cluster(client) == address


def test_tls_bytes_on_a_plain_listener(broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("PLAINTEXT", "SASL_PLAINTEXT"):
        caplog.clear()
        with (
            pytest.raises((ssl.SSLError, ConnectionResetError)),
            Client(broker.listeners[name], ssl.create_default_context()),
        ):
            pass
        assert "these bytes are TLS, and this listener has none: look at the client's security.protocol" in caplog.text


@pytest.mark.parametrize("name", ["SSL", "SASL_SSL"])
def test_plain_bytes_on_a_tls_listener(broker: EmbeddedBroker, name: str, caplog: pytest.LogCaptureFixture) -> None:
    with Client(broker.listeners[name]) as client:
        client.send(ApiKey.API_VERSIONS, 0, b"")
        # What is heard first is TLS's alert.
        client.file.read()
    assert f"on listener {name}: the TLS handshake failed: what came is not TLS" in caplog.text
    assert "the client's security.protocol must be SSL or SASL_SSL here" in caplog.text


def test_a_connection_that_ends_in_the_handshake(broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture) -> None:
    with Client(broker.listeners["SSL"]) as client:
        client.socket.sendall(b"\x16\x03\x01\x02\x00")
        client.socket.shutdown(socket.SHUT_WR)
        assert client.is_closed()
    assert "on listener SSL: it ended in the TLS handshake" in caplog.text


def test_a_listener_that_wants_certificates(
    broker: EmbeddedBroker, authority: Authority, trusting: ssl.SSLContext, caplog: pytest.LogCaptureFixture
) -> None:
    address = broker.listeners["STRICT"]
    with pytest.raises((ssl.SSLError, ConnectionResetError)), Client(address, trusting) as client:
        client.file.read(1)
    assert "on listener STRICT: the TLS handshake failed: PEER_DID_NOT_RETURN_A_CERTIFICATE" in caplog.text
    stranger = Authority(authority.directory, "stranger").issue("stranger-client.pem")
    context = ssl.create_default_context(cafile=str(authority.file))
    context.load_cert_chain(stranger.file)
    with pytest.raises((ssl.SSLError, ConnectionResetError)), Client(address, context) as client:
        client.file.read(1)
    assert "CERTIFICATE_VERIFY_FAILED" in caplog.text
    trusting.load_cert_chain(authority.issue("client.pem").file)
    with Client(address, trusting) as client:
        assert isinstance(client.socket, ssl.SSLSocket)
        assert client.socket.version() == "TLSv1.2"
        assert cluster(client) == address


def test_requests_before_authentication(broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture) -> None:
    address = broker.listeners["SASL_PLAINTEXT"]
    with Client(address) as client:
        assert client.ask(ApiKey.API_VERSIONS, 0).error_code == 0
        client.send(ApiKey.METADATA, 1, b"\xff\xff\xff\xff")
        assert client.is_closed()
    assert "on listener SASL_PLAINTEXT: unexpected METADATA request during SASL handshake" in caplog.text
    with Client(address) as client:
        client.socket.sendall(struct.pack(">i", 2049))
        assert client.is_closed()
    assert "frame of 2049 bytes; at most 2048 are accepted (sasl.server.max.receive.size)" in caplog.text
    with Client(address) as client:
        assert client.authenticate().error_code == 0
        client.socket.sendall(struct.pack(">i", 2049))  # now the limit is that of everybody
        client.socket.shutdown(socket.SHUT_WR)
        assert client.is_closed()
    assert "it ended 2049 bytes before its frame" in caplog.text


def test_a_wrong_password_is_told_and_ends_the_connection(
    broker: EmbeddedBroker, trusting: ssl.SSLContext, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    for name in ("SASL_PLAINTEXT", "SASL_SSL"):
        with Client(broker.listeners[name], trusting if name == "SASL_SSL" else None) as client:
            said = client.authenticate(WRONG)
            assert said.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert said.error_message == "Authentication failed: Invalid username or password"
            with contextlib.suppress(ssl.SSLEOFError):
                assert client.is_closed()
        assert f"on listener {name}: authentication by PLAIN failed: wrong password of 'alice'" in caplog.text
    assert SECRET not in caplog.text
    assert WRONG not in caplog.text


def test_what_comes_behind_a_wrong_password_is_not_looked_at(broker: EmbeddedBroker) -> None:
    with Client(broker.listeners["SASL_PLAINTEXT"]) as client:
        assert client.ask(ApiKey.SASL_HANDSHAKE, 1, mechanism="PLAIN").error_code == 0
        guesses = [apis.request(ApiKey.SASL_AUTHENTICATE, 0, auth_bytes=b"\0alice\0" + each.encode())
                   for each in (WRONG, SECRET)]  # fmt: skip
        for guess in guesses:
            client.send(ApiKey.SASL_AUTHENTICATE, 0, bytes(apis.encode_request(guess, 0)))
        answer = apis.decode_response(ApiKey.SASL_AUTHENTICATE, 0, client.receive(ApiKey.SASL_AUTHENTICATE, 0))
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert client.is_closed()


def test_a_session_says_how_long_it_lasts_and_sasl_comes_too_late_elsewhere(
    broker: EmbeddedBroker, trusting: ssl.SSLContext
) -> None:
    with Client(broker.listeners["SASL_SSL"], trusting) as client:
        assert client.authenticate().session_lifetime_ms == 3_600_000
        assert client.authenticate().session_lifetime_ms == 3_600_000
        again = client.ask(ApiKey.SASL_HANDSHAKE, 1, mechanism="PLAIN")
        assert again.error_code == ErrorCode.ILLEGAL_SASL_STATE
    with Client(broker.listeners["PLAINTEXT"]) as client:
        assert client.ask(ApiKey.SASL_HANDSHAKE, 1, mechanism="PLAIN").error_code == ErrorCode.ILLEGAL_SASL_STATE
        said = client.ask(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=b"\0alice\0" + SECRET.encode())
        assert said.error_code == ErrorCode.ILLEGAL_SASL_STATE


def test_large_answers_and_many_requests_over_tls_come_whole(broker: EmbeddedBroker, trusting: ssl.SSLContext) -> None:
    with Client(broker.listeners["SSL"], trusting) as client:
        client.ask(ApiKey.METADATA, 1, topics=[("large",)])
        for number in range(24):
            batch = bytearray(encode_batch([Record(None, bytes([number]) * 700_000, number)]))
            topic = produce.ProduceTopic("large", ZERO_UUID, [produce.ProducePartition(0, batch)])
            body = bytes(produce.encode_request(9, produce.ProduceRequest(None, -1, 1000, [topic])))
            client.send(ApiKey.PRODUCE, 9, body)
        for _ in range(24):
            assert produce.decode_response(9, client.receive(ApiKey.PRODUCE, 9)).topics[0].partitions[0].error_code == 0
        partition = fetch.FetchPartition(0, 0, 1 << 30)
        wanted = fetch.FetchRequest(0, 1, 1 << 30, [fetch.FetchTopic("large", ZERO_UUID, [partition])])
        body = bytes(fetch.encode_request(12, wanted))
        for _ in range(2):  # the second waits behind the first
            client.send(ApiKey.FETCH, 12, body)
        for _ in range(2):
            answer = fetch.decode_response(12, client.receive(ApiKey.FETCH, 12))
            data: Any = answer.topics[0].partitions[0].records
            records = decode_all(data)
            assert [record.value for record in records] == [bytes([number]) * 700_000 for number in range(24)]


def pipelined(client: Client, topic: str, frame: tuple[int, int, bytes]) -> int:
    """Send a long poll, and requests behind it that end a little beyond the read buffer; return how many."""
    client.ask(ApiKey.METADATA, 1, topics=[(topic,)])
    partition = fetch.FetchPartition(0, 0, 1 << 20)
    poll = fetch.FetchRequest(300, 1 << 20, 1 << 20, [fetch.FetchTopic(topic, ZERO_UUID, [partition])])
    client.send(ApiKey.FETCH, 12, bytes(fetch.encode_request(12, poll)))
    key, version, body = frame
    whole = bytes(frames.encode_request_header(key, version, 1, "test")) + body
    whole = struct.pack(">i", len(whole)) + whole
    count = READ_BUFFER_BYTES // len(whole) + 1
    client.socket.sendall(whole)  # alone, so that a later record of TLS straddles the end of the buffer
    client.socket.sendall(whole * (count - 1))
    return count


LISTENERS = [("PLAINTEXT", None), ("SSL", ssl.TLSVersion.TLSv1_2), ("SSL", ssl.TLSVersion.TLSv1_3)]


@pytest.mark.parametrize(("name", "version"), LISTENERS)
def test_requests_behind_one_that_waits_are_answered(
    broker: EmbeddedBroker, trusting: ssl.SSLContext, name: str, version: ssl.TLSVersion | None
) -> None:
    """Also those that were decrypted with others, and found no room in the read buffer."""
    trusting.maximum_version = version or trusting.maximum_version
    with Client(broker.listeners[name], trusting if version else None) as client:
        count = pipelined(client, "behind", (ApiKey.API_VERSIONS, 0, b""))
        client.receive(ApiKey.FETCH, 12)
        for _ in range(count):
            client.receive(ApiKey.API_VERSIONS, 0)


@pytest.mark.parametrize(("name", "version"), LISTENERS)
def test_records_behind_a_request_that_waits_are_written_though_the_client_ends(
    broker: EmbeddedBroker, trusting: ssl.SSLContext, name: str, version: ssl.TLSVersion | None
) -> None:
    trusting.maximum_version = version or trusting.maximum_version
    topic = f"ends-{name}-{version and version.name}"
    batch = bytes(encode_batch([Record(None, b"v" * 100, 1_700_000_000_000)]))
    part = produce.ProduceTopic(topic, ZERO_UUID, [produce.ProducePartition(0, batch)])
    body = bytes(produce.encode_request(9, produce.ProduceRequest(None, 0, 1000, [part])))
    with Client(broker.listeners[name], trusting if version else None) as client:
        count = pipelined(client, topic, (ApiKey.PRODUCE, 9, body))
        client.socket.shutdown(socket.SHUT_WR)
        with Client(broker.listeners["PLAINTEXT"]) as reader:
            partition = fetch.FetchPartition(0, 0, 1 << 20)
            all_of_it = fetch.FetchRequest(
                10_000, count * len(batch), 1 << 20, [fetch.FetchTopic(topic, ZERO_UUID, [partition])]
            )
            reader.send(ApiKey.FETCH, 12, bytes(fetch.encode_request(12, all_of_it)))
            answer = fetch.decode_response(12, reader.receive(ApiKey.FETCH, 12))
            data: Any = answer.topics[0].partitions[0].records
            assert len(list(decode_all(data))) == count


@pytest.mark.parametrize("process", [False, True])
def test_a_restart_keeps_every_listeners_port(process: bool, tmp_path: Path) -> None:
    settings = {"listeners": "PLAINTEXT://127.0.0.1:0,OTHER://localhost:0",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT"}  # fmt: skip
    with EmbeddedBroker(tmp_path / "data", process=process, config=settings) as broker:
        before = broker.listeners
        broker.restart()
        assert broker.listeners == before
        assert list(before) == ["PLAINTEXT", "OTHER"]
        with Client(before["OTHER"]) as client:
            assert cluster(client) == before["OTHER"]


def test_a_damaged_file_of_lists_stops_the_start_and_lets_go_of_the_directory(tmp_path: Path) -> None:
    settings = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
    (tmp_path / "acls.json").write_text("{}")
    with pytest.raises(BrokerStartError, match=r"acls.json holds no ACLs .* mend it, or put a copy back"):
        EmbeddedBroker(tmp_path, config=settings)
    (tmp_path / "acls.json").unlink()
    EmbeddedBroker(tmp_path, config=settings).close()

"""A connection's first words against a scripted server: versions, SASL, and answers that are none."""

from __future__ import annotations

import shutil
import socket
import ssl
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sparkonce.kafka.client.client import Client
from sparkonce.kafka.client.connection import SASL_AUTHENTICATE, SASL_HANDSHAKE, BrokerConnection, SaslError
from sparkonce.kafka.client.settings import ClientSettings, read_settings
from sparkonce.kafka.protocol.apis import ApiKey
from sparkonce.kafka.protocol.errors import ProtocolError

VERSIONS = struct.pack(">hihhhhhh", 0, 2, ApiKey.METADATA, 0, 12, ApiKey.FETCH, 4, 16)
Answer = Callable[[int, bytes], bytes]


@contextmanager
def server(answer: Answer, correlation_shift: int = 0, tls: ssl.SSLContext | None = None) -> Iterator[dict[str, str]]:
    """Answer one connection's requests, each by its API key and what follows the header; give the address."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        peer, _ = listener.accept()
        if tls is not None:
            try:
                peer = tls.wrap_socket(peer, server_side=True)
            except ssl.SSLError:  # the client did not like our certificate, as it should
                peer.close()
                return
        with peer, peer.makefile("rb") as stream:
            while head := stream.read(4):
                frame = stream.read(struct.unpack(">i", head)[0])
                api_key, _, correlation_id, client_size = struct.unpack_from(">hhih", frame)
                body = struct.pack(">i", correlation_id + correlation_shift) + answer(
                    api_key, frame[10 + client_size :]
                )
                peer.sendall(struct.pack(">i", len(body)) + body)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        host, port = listener.getsockname()
        yield {"kafka.bootstrap.servers": f"{host}:{port}"}
    finally:
        thread.join()
        listener.close()


def connect(options: dict[str, str], **more: str) -> BrokerConnection:
    found: ClientSettings = read_settings({**options, **more})
    return BrokerConnection(*found.bootstrap_servers[0], found)


def sasl(mechanism: str, password: str = "s3cret") -> dict[str, str]:
    return {
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": mechanism,
        "kafka.sasl.username": "me",
        "kafka.sasl.password": password,
    }


def plain_broker(api_key: int, body: bytes) -> bytes:
    if api_key == SASL_HANDSHAKE:
        offered = struct.pack(">ih5s", 1, 5, b"PLAIN")
        return struct.pack(">h", 0 if b"PLAIN" in body else 33) + offered
    if api_key == SASL_AUTHENTICATE:
        if body == struct.pack(">i", 12) + b"me\0me\0s3cret":
            return struct.pack(">hhi", 0, -1, 0)
        return struct.pack(">hh9si", 58, 9, b"not today", 0)
    return VERSIONS


def test_the_newest_version_that_both_speak_is_chosen() -> None:
    with server(plain_broker) as options:
        connection = connect(options)
        assert (connection.version(ApiKey.METADATA), connection.version(ApiKey.FETCH)) == (12, 16)
        with pytest.raises(ProtocolError, match="speaks LIST_OFFSETS versions -1 to -1"):
            connection.version(ApiKey.LIST_OFFSETS)
        connection.close()


def test_a_user_logs_in_by_plain() -> None:
    with server(plain_broker) as options:
        connection = connect(options, **sasl("PLAIN"))
        assert connection.version(ApiKey.METADATA) == 12
        connection.close()


def test_a_refused_user_is_named_and_the_password_is_not() -> None:
    with server(plain_broker) as options, pytest.raises(SaslError, match=r"refused user 'me'.*not today") as caught:
        connect(options, **sasl("PLAIN", "wrong-one"))
    assert "wrong-one" not in str(caught.value)


def test_a_mechanism_that_is_not_offered() -> None:
    with server(plain_broker) as options, pytest.raises(SaslError, match=r"does not offer.*it offers PLAIN"):
        connect(options, **sasl("SCRAM-SHA-256"))


def test_a_refused_user_is_not_tried_again() -> None:
    with server(plain_broker) as options, pytest.raises(SaslError):
        Client(read_settings({**options, **sasl("PLAIN", "wrong")})).topics(["t"])


def test_an_answer_to_another_request() -> None:
    with server(plain_broker, correlation_shift=1) as options, pytest.raises(ProtocolError, match="answered request 2"):
        connect(options)


def test_a_peer_that_does_not_speak_kafka() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            peer, _ = listener.accept()
            with peer:
                peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                peer.recv(100)

        thread = threading.Thread(target=serve)
        thread.start()
        host, port = listener.getsockname()
        with pytest.raises(ProtocolError, match=r"frame of \d+ bytes: does this port speak Kafka, without TLS"):
            connect({"kafka.bootstrap.servers": f"{host}:{port}"})
        thread.join()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 that signs itself, and its key."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl to make a certificate with")
    folder = tmp_path_factory.mktemp("tls")
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    request = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=broker -addext subjectAltName=IP:127.0.0.1"
    command = [*request.split(), "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    return certificate, key


def server_tls(certificate: tuple[Path, Path]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    return context


@pytest.mark.parametrize("name", ["kafka.ssl.ca.location", "kafka.ssl.truststore.certificates"])
def test_tls_with_a_certificate_by_place_or_by_content(certificate: tuple[Path, Path], name: str) -> None:
    trusted = str(certificate[0]) if name.endswith("location") else certificate[0].read_text()
    with server(plain_broker, tls=server_tls(certificate)) as options:
        connection = connect(options, **{"kafka.security.protocol": "SSL", name: trusted})
        assert connection.version(ApiKey.METADATA) == 12
        connection.close()


def test_a_certificate_that_nobody_vouches_for_is_refused_at_once(certificate: tuple[Path, Path]) -> None:
    with server(plain_broker, tls=server_tls(certificate)) as options:
        client = Client(read_settings({**options, "kafka.security.protocol": "SSL"}))
        with pytest.raises(ssl.SSLCertVerificationError):
            client.topics(["t"])

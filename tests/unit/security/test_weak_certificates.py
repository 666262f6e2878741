"""Certificates that Java may accept and OpenSSL does not: whoever refuses one says what to do."""

from __future__ import annotations

import re
import socket
import ssl
import threading
from pathlib import Path

import pytest

from sparkonce import EmbeddedBroker
from sparkonce.broker_lite.config import BrokerConfig
from sparkonce.broker_lite.security.tls import TlsError, server_context
from sparkonce.kafka.client.security import Tls
from sparkonce.kafka.client.tls import tls_context, wrap
from sparkonce.options import OptionError
from tests.cases import each_case

STORES = Path(__file__).parents[1] / "source" / "key_stores"
WEAK = {
    "digest": "CA_MD_TOO_WEAK: .* signed again with SHA-256",
    "key": "EE_KEY_TOO_SMALL: .* new certificate with a key of at least 2048 bits",
    "authority": "CA_KEY_TOO_SMALL: .* authority .* at least 2048 bits",
}


@each_case("name", WEAK)
def test_a_weak_certificate_of_one_s_own(name: str) -> None:
    place = str(STORES / f"weak_{name}.pem")
    (listener,) = BrokerConfig.of({"listeners": "SSL://:0", "ssl.keystore.location": place}).listener_configs
    with pytest.raises(TlsError, match=f" ssl.keystore.location={place} cannot be used: {WEAK[name]}"):
        server_context(listener)
    with pytest.raises(OptionError, match=f"kafka.ssl.keystore.location={place} cannot be used: {WEAK[name]}"):
        tls_context(Tls(certificate_location=place))


def authority_of(name: str, directory: Path) -> str:
    text = (STORES / f"weak_{name}.pem").read_text()
    place = directory / f"{name}.pem"
    place.write_text(text[text.rindex("-----BEGIN CERTIFICATE") :])
    return str(place)


@each_case("name", WEAK)
def test_a_weak_certificate_of_a_client(name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    settings = {
        "listeners": "SSL://127.0.0.1:0",
        "ssl.keystore.location": STORES / "broker.pem",
        "ssl.truststore.location": authority_of(name, tmp_path),
        "ssl.client.auth": "required",
    }
    client = ssl.create_default_context(cafile=STORES / "authority.pem")
    client.set_ciphers("DEFAULT@SECLEVEL=0")
    client.load_cert_chain(STORES / f"weak_{name}.pem")
    with EmbeddedBroker(config=settings) as broker:
        host, _, port = broker.listeners["SSL"].rpartition(":")
        with (
            socket.create_connection((host, int(port))) as raw,
            client.wrap_socket(raw, server_hostname="localhost") as secured,
            pytest.raises(ssl.SSLError, match="BAD_CERTIFICATE"),
        ):
            secured.recv(1)
    reason = WEAK[name].partition(":")[0]
    assert f"the TLS handshake failed: the client's certificate is refused: {reason}: " in caplog.text


@each_case("name", WEAK)
def test_a_weak_certificate_of_a_broker(name: str, tmp_path: Path) -> None:
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.set_ciphers("DEFAULT@SECLEVEL=0")
    server.load_cert_chain(STORES / f"weak_{name}.pem")
    ours, theirs = socket.socketpair()

    def serve() -> None:
        with pytest.raises(ssl.SSLError, match="BAD_CERTIFICATE"):
            server.wrap_socket(theirs, server_side=True)

    thread = threading.Thread(target=serve)
    thread.start()
    reason = f"^the certificate of broker localhost is refused: {WEAK[name]}"
    try:
        with pytest.raises(ssl.SSLCertVerificationError) as caught:
            wrap(ours, Tls(ca_location=authority_of(name, tmp_path)), "localhost")
        assert re.search(reason, caught.value.strerror)
    finally:
        ours.close()
        thread.join()
        theirs.close()

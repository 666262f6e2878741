"""Which certificates a trust store may hold: as in Java, any of the chain, not only the root of it."""

from __future__ import annotations

import contextlib
import datetime
import os
import ssl
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from sparkonce.broker_lite.config import BrokerConfig
from sparkonce.broker_lite.security.tls import server_context
from sparkonce.kafka.client.security import Tls
from sparkonce.kafka.client.tls import tls_context
from tests.cases import each_case

DAY = datetime.timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Entity:
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def pem(self) -> str:
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()

    @property
    def key_pem(self) -> str:
        kind = serialization.PrivateFormat.PKCS8
        return self.key.private_bytes(serialization.Encoding.PEM, kind, serialization.NoEncryption()).decode()


def entity(name: str, issuer: Entity | None = None, *, authority: bool = True) -> Entity:
    """Make one without key identifiers, as private authorities often are."""
    now, key = datetime.datetime.now(datetime.UTC), ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = (
        x509.CertificateBuilder(subject_name=subject, public_key=key.public_key())
        .issuer_name(issuer.certificate.subject if issuer else subject)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - DAY)
        .not_valid_after(now + DAY)
        .add_extension(x509.BasicConstraints(authority, None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
    )
    return Entity(builder.sign(issuer.key if issuer else key, hashes.SHA256()), key)


ROOT = entity("root")
BETWEEN = entity("between", ROOT)
BROKER = entity("broker", BETWEEN, authority=False)
OTHER = entity("root")


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> ssl.SSLContext:
    file: Path = tmp_path_factory.mktemp("broker") / "broker.pem"
    file.write_text(BROKER.key_pem + BROKER.pem + BETWEEN.pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    return context


def shake_hands(serving: ssl.SSLContext, trusted: Entity, host: str = "broker", **own: Any) -> None:
    """Connect in memory."""
    one, other = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = tls_context(Tls(ca_pem=trusted.pem, **own)).wrap_bio(one, other, server_hostname=host)
    server = serving.wrap_bio(other, one, server_side=True)
    waiting = [client, server]
    for _ in range(8):
        for side in list(waiting):
            try:
                side.do_handshake()
                waiting.remove(side)
            except ssl.SSLWantReadError:
                pass
    assert not waiting


@pytest.mark.parametrize("trusted", [ROOT, BETWEEN, BROKER], ids=["root", "between", "the broker's own"])
def test_each_certificate_of_the_chain_can_be_trusted(serving: ssl.SSLContext, trusted: Entity) -> None:
    shake_hands(serving, trusted)


@each_case("trusted", [ROOT, BETWEEN, BROKER, OTHER], ["root", "between", "the client's own", "another"])
def test_a_broker_trusts_each_certificate_too(trusted: Entity, tmp_path: Path) -> None:
    file = tmp_path / "trusted.pem"
    file.write_text("# Főtanúsítvány, as bundles of authorities have it\n" + trusted.pem)
    own = {"certificate_pem": BROKER.pem + BETWEEN.pem, "key_pem": BROKER.key_pem}
    settings = {"listeners": "SSL://:0", "ssl.truststore.location": file, "ssl.client.auth": "required"}
    settings |= {"ssl.keystore.certificate.chain": own["certificate_pem"], "ssl.keystore.key": own["key_pem"]}
    broker = server_context(BrokerConfig.of(settings).listener_configs[0])
    assert tls_context(Tls(ca_location=str(file))).get_ca_certs() == broker.get_ca_certs()
    with pytest.raises(ssl.SSLCertVerificationError) if trusted is OTHER else contextlib.nullcontext():
        shake_hands(broker, ROOT, **own)


def test_no_other_is_and_the_name_still_counts(serving: ssl.SSLContext) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match="certificate verify failed"):
        shake_hands(serving, OTHER)
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        shake_hands(serving, BROKER, host="elsewhere")


def test_faults_of_private_authorities_are_let_pass_in_every_version_of_python() -> None:
    flags = tls_context(Tls(ca_pem=ROOT.pem)).verify_flags
    assert not flags & ssl.VERIFY_X509_STRICT


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="this system has no files in memory")
def test_a_key_from_the_settings_never_lies_in_a_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that is killed between the writing and the removing of a file would leave the key there."""

    def no_file(*_: object, **__: object) -> None:
        raise AssertionError("a temporary file")

    monkeypatch.setattr(tempfile, "NamedTemporaryFile", no_file)
    open_before = set(os.listdir("/proc/self/fd"))
    tls_context(Tls(ca_pem=ROOT.pem, certificate_pem=BROKER.pem, key_pem=BROKER.key_pem))
    assert set(os.listdir("/proc/self/fd")) <= open_before

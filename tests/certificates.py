"""Certificates for tests: an authority, a broker's, clients'. Small keys, made anew each time."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

Subject = list[tuple[x509.ObjectIdentifier, str]]
BROKER: Subject = [(NameOID.COMMON_NAME, "localhost")]
_DAY = datetime.timedelta(days=1)


@dataclass(frozen=True)
class Identity:
    """A certificate with its private key; `file` holds both and the authority's certificate, in PEM."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey
    file: Path

    @property
    def chain(self) -> str:
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()

    def key_text(self, password: str | None = None) -> str:
        protection: serialization.KeySerializationEncryption = serialization.NoEncryption()
        if password is not None:
            protection = serialization.BestAvailableEncryption(password.encode())
        form = serialization.PrivateFormat.PKCS8
        return self.key.private_bytes(serialization.Encoding.PEM, form, protection).decode()


class Authority:
    """Signs certificates; its own is in `file`."""

    def __init__(self, directory: Path, name: str = "authority") -> None:
        self.directory = directory
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        usage = x509.BasicConstraints(ca=True, path_length=None)
        builder = _builder(self.name, self.name, self.key.public_key())
        self.certificate = builder.add_extension(usage, critical=True).sign(self.key, hashes.SHA256())
        self.file = directory / f"{name}.pem"
        self.file.write_text(self.text)

    @property
    def text(self) -> str:
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()

    def issue(self, file_name: str, subject: Subject = BROKER) -> Identity:
        """Make a key and its certificate, for 127.0.0.1 and localhost."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(kind, value) for kind, value in subject])
        names = x509.SubjectAlternativeName(
            [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        )
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
        builder = _builder(name, self.name, key.public_key())
        certificate = (
            builder.add_extension(names, critical=False)
            .add_extension(usage, critical=False)
            .sign(self.key, hashes.SHA256())
        )
        identity = Identity(certificate, key, self.directory / file_name)
        identity.file.write_text(identity.key_text() + identity.chain + self.text)
        return identity


def _builder(subject: x509.Name, issuer: x509.Name, public_key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _DAY)
        .not_valid_after(now + _DAY)
    )

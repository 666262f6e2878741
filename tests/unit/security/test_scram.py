"""SCRAM: the vectors of RFC 7677, a client of our own for both mechanisms, and everything that must fail."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkonce.broker_lite.security.mechanism import SaslError
from sparkonce.broker_lite.security.scram import (
    SCRAM_SHA_256,
    SCRAM_SHA_512,
    ScramCredential,
    ScramMechanism,
    ScramServer,
)
from tests.cases import each_case

NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
FINAL = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
PENCIL = {each: ScramCredential.of_password(each, SALT, "pencil", 4096) for each in (SCRAM_SHA_256, SCRAM_SHA_512)}


def server(mechanism: ScramMechanism = SCRAM_SHA_256, user: str = "user") -> ScramServer:
    return ScramServer(mechanism, {user: PENCIL[mechanism]}.get, NONCE)


def test_the_exchange_of_rfc_7677() -> None:
    scram = server()
    assert scram.evaluate(FIRST) == SERVER_FIRST
    assert not scram.complete
    assert scram.evaluate(FINAL) == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert scram.complete
    assert scram.user == "user"


def client_final(
    mechanism: ScramMechanism, password: str, first: bytes, server_first: bytes, binding: bytes = b"n,,"
) -> tuple[bytes, bytes]:
    """What a client says to the server's first message, and what it then expects to hear."""
    fields = dict(part.split("=", 1) for part in server_first.decode().split(","))
    digest = mechanism.hash_name
    salted = hashlib.pbkdf2_hmac(digest, password.encode(), base64.b64decode(fields["s"]), int(fields["i"]))
    client_key = hmac.digest(salted, b"Client Key", digest)
    without_proof = b"c=" + base64.b64encode(binding) + b",r=" + fields["r"].encode()
    signed = b",".join([first.removeprefix(binding), server_first, without_proof])
    signature = hmac.digest(hashlib.new(digest, client_key).digest(), signed, digest)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    expected = hmac.digest(hmac.digest(salted, b"Server Key", digest), signed, digest)
    return without_proof + b",p=" + base64.b64encode(proof), b"v=" + base64.b64encode(expected)


@pytest.mark.parametrize("mechanism", [SCRAM_SHA_256, SCRAM_SHA_512])
@pytest.mark.parametrize(
    ("header", "name", "user"),
    [(b"n,,", b"user", "user"), (b"y,,", b"user", "user"), (b"n,a=o=2Cn=3De,", b"o=2Cn=3De", "o,n=e"),
     (b"n,,", "ü€".encode(), "ü€")],
)  # fmt: skip
def test_a_right_password(mechanism: ScramMechanism, header: bytes, name: bytes, user: str) -> None:
    scram = server(mechanism, user)
    first = header + b"n=" + name + b",r=fyko"
    final, expected = client_final(mechanism, "pencil", first, scram.evaluate(first), header)
    assert scram.evaluate(final) == expected
    assert scram.user == user


@pytest.mark.parametrize("mechanism", [SCRAM_SHA_256, SCRAM_SHA_512])
def test_a_wrong_password(mechanism: ScramMechanism) -> None:
    scram = server(mechanism)
    final, _ = client_final(mechanism, "pen", FIRST, scram.evaluate(FIRST))
    with pytest.raises(SaslError, match="wrong password of 'user'") as raised:
        scram.evaluate(final)
    assert raised.value.shown is None
    assert not scram.complete


@each_case(
    "first",
    [
        b"", b"n", b"n,,n=user", b"n,,r=x,n=user", b"p=tls-unique,,n=user,r=x", b"n,,n=,r=x", b"n,,n=user,r=",
        b"n,,n=us=er,r=x", b"n,,m=x,n=user,r=x", b"\xff", b"n,,n=nobody,r=x", b"n,a=other,n=user,r=x",
        b"n,,n=user,r=a b", b"n,,n=us\0er,r=x",
    ],
)  # fmt: skip
def test_a_first_message_that_is_refused(first: bytes) -> None:
    with pytest.raises(SaslError):
        server().evaluate(first)


@pytest.mark.parametrize(
    ("old", "new"),
    [(b"c=biws", b"c=eSws"), (b"k0,p=", b"k1,p="), (b"r=rOpr", b"r=xOpr"), (b"p=dHzb", b"p=eHzb"), (b"p=", b"q="),
     (b"c=biws,", b""), (b"AndVQ=", b"AndVQ"), (b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=", b"p=AA==")],
)  # fmt: skip
def test_a_final_message_that_is_refused(old: bytes, new: bytes) -> None:
    scram = server()
    scram.evaluate(FIRST)
    assert old in FINAL
    with pytest.raises(SaslError):
        scram.evaluate(FINAL.replace(old, new))
    assert not scram.complete


def test_a_credential_with_too_few_iterations_is_of_no_use() -> None:
    weak = ScramCredential.of_password(SCRAM_SHA_256, SALT, "pencil", 4095)
    with pytest.raises(SaslError, match="too few iterations"):
        ScramServer(SCRAM_SHA_256, {"user": weak}.get, NONCE).evaluate(FIRST)


def test_the_exchange_is_over_when_it_is_complete() -> None:
    scram = server()
    scram.evaluate(FIRST)
    scram.evaluate(FINAL)
    with pytest.raises(SaslError):
        scram.evaluate(FINAL)


@given(st.lists(st.binary(max_size=80), max_size=4))
def test_nothing_but_its_own_error_comes_of_any_bytes(tokens: list[bytes]) -> None:
    scram = server()
    for token in tokens:
        try:
            scram.evaluate(token)
        except SaslError:
            break
    assert not scram.complete


def test_a_credential_shows_nothing() -> None:
    shown = repr(PENCIL[SCRAM_SHA_256])
    assert shown == "ScramCredential(iterations=4096)"

"""What a connection's frames mean until its client has proved who it is."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkonce.broker_lite.security.acls import ANONYMOUS
from sparkonce.broker_lite.security.sasl import SaslGate, Stage, Step
from sparkonce.broker_lite.security.scram import SCRAM_SHA_256, ScramCredential
from sparkonce.broker_lite.security.settings import SaslConfig
from sparkonce.kafka.protocol import apis, frames
from sparkonce.kafka.protocol.apis import ApiKey
from sparkonce.kafka.protocol.errors import ErrorCode, ProtocolError
from tests.cases import each_case

PENCIL = ScramCredential.of_password(SCRAM_SHA_256, b"salt", "pencil", 4096)
ALICE, BOB = b"\0alice\0a", b"\0bob\0b"


def gate(max_reauth_ms: int = 0) -> SaslGate:
    mechanisms = ("PLAIN", "SCRAM-SHA-256")
    users = {"PLAIN": {"alice": "a", "bob": "b"}, "SCRAM-SHA-256": {}}
    config = SaslConfig(mechanisms, users, dict.fromkeys(mechanisms, max_reauth_ms), 1024, 0)
    return SaslGate(config, lambda mechanism, user: PENCIL if (mechanism, user) == ("SCRAM-SHA-256", "user") else None,
                    lambda: "nonce")  # fmt: skip


def frame(key: ApiKey, version: int, **fields: Any) -> bytes:
    head = frames.encode_request_header(key, version, 7, "test")
    return bytes(head + apis.encode_request(apis.request(key, version, **fields), version))


def handshake(mechanism: str = "PLAIN", version: int = 1) -> bytes:
    return frame(ApiKey.SASL_HANDSHAKE, version, mechanism=mechanism)


def token(content: bytes, version: int = 2) -> bytes:
    return frame(ApiKey.SASL_AUTHENTICATE, version, auth_bytes=content)


def answer(step: Step, key: ApiKey, version: int) -> Any:
    assert step.answer is not None
    assert int.from_bytes(step.answer[:4], "big") == len(step.answer) - 4
    correlation_id, position = frames.read_response_header(key, version, step.answer[4:])
    assert correlation_id == 7
    return apis.decode_response(key, version, step.answer[4 + position :])


def opened(max_reauth_ms: int = 0, user: bytes = ALICE, now_ms: int = 0) -> SaslGate:
    found = gate(max_reauth_ms)
    found.receive(handshake(), now_ms)
    found.receive(token(user), now_ms)
    assert found.stage is Stage.OPEN
    return found


API_VERSIONS = frame(ApiKey.API_VERSIONS, 0)
METADATA = frame(ApiKey.METADATA, 1, topics=None)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_plain(version: int) -> None:
    found = gate()
    assert found.receive(API_VERSIONS, 0) == Step(pass_on=True)
    said = answer(found.receive(handshake(), 0), ApiKey.SASL_HANDSHAKE, 1)
    assert said.error_code == 0
    assert said.mechanisms == ["PLAIN", "SCRAM-SHA-256"]
    assert not found.lets_through(METADATA, 0)
    step = found.receive(token(ALICE, version), 0)
    said = answer(step, ApiKey.SASL_AUTHENTICATE, version)
    assert (said.error_code, bytes(said.auth_bytes), step.failure) == (0, b"", None)
    assert found.principal == "User:alice"
    assert found.lets_through(METADATA, 10**12)


def test_bare_tokens_after_a_handshake_v0() -> None:
    found = gate()
    found.receive(handshake(version=0), 0)
    assert found.receive(ALICE, 0) == Step(b"\0\0\0\0")
    assert found.principal == "User:alice"
    wrong = gate()
    wrong.receive(handshake(version=0), 0)
    assert wrong.receive(b"\0alice\0b", 0) == Step(failure="authentication by PLAIN failed: wrong password of 'alice'")


def test_scram_takes_two_tokens() -> None:
    found = gate()
    found.receive(handshake("SCRAM-SHA-256"), 0)
    said = answer(found.receive(token(b"n,,n=user,r=mine"), 0), ApiKey.SASL_AUTHENTICATE, 2)
    assert bytes(said.auth_bytes).startswith(b"r=minenonce,s=")
    assert found.stage is Stage.AUTHENTICATE
    said = answer(found.receive(token(b"c=biws,r=minenonce,p=AAAA"), 0), ApiKey.SASL_AUTHENTICATE, 2)
    assert said.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert said.error_message == (
        "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-256"
    )
    assert found.stage is Stage.FAILED
    assert found.principal == ANONYMOUS


def test_a_mechanism_that_is_not_enabled() -> None:
    step = gate().receive(handshake("GSSAPI"), 0)
    said = answer(step, ApiKey.SASL_HANDSHAKE, 1)
    assert said.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert said.mechanisms == ["PLAIN", "SCRAM-SHA-256"]
    assert step.failure == "SASL mechanism 'GSSAPI' is not enabled"


@each_case("key", [key for key in ApiKey if key not in (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE)])
def test_nothing_else_is_looked_at_before_authentication(key: ApiKey) -> None:
    found = gate()
    step = found.receive(bytes(frames.encode_request_header(key, apis.APIS[key].max_version, 1, "test")), 0)
    assert step == Step(failure=f"unexpected {key.name} request during SASL handshake")
    assert found.stage is Stage.FAILED
    assert found.receive(handshake(), 0).failure is not None


@pytest.mark.parametrize("request_frame", [API_VERSIONS, METADATA, handshake()])
def test_only_tokens_after_the_handshake(request_frame: bytes) -> None:
    found = gate()
    found.receive(handshake(), 0)
    step = found.receive(request_frame, 0)
    assert step.answer is None
    assert step.failure is not None
    assert "during SASL authentication" in step.failure


def test_a_session_ends_and_is_renewed() -> None:
    found = gate(5000)
    found.receive(handshake(), 0)
    assert answer(found.receive(token(ALICE), 100), ApiKey.SASL_AUTHENTICATE, 2).session_lifetime_ms == 5000
    assert found.lets_through(METADATA, 5099)
    assert not found.lets_through(handshake(), 5099)
    found.receive(handshake(), 5099)
    assert not found.lets_through(METADATA, 5099)
    assert answer(found.receive(token(ALICE), 5200), ApiKey.SASL_AUTHENTICATE, 2).session_lifetime_ms == 5000
    assert found.lets_through(METADATA, 10199)
    assert not found.lets_through(METADATA, 10200)
    assert found.receive(METADATA, 10200).failure == (
        "the session of User:alice has expired (connections.max.reauth.ms)"
    )


def test_a_second_handshake_within_a_second_is_the_handlers_to_refuse() -> None:
    found = opened(5000)
    found.receive(handshake(), 1000)
    found.receive(token(ALICE), 1000)
    assert found.lets_through(handshake(), 1999)
    assert not found.lets_through(handshake(), 2000)
    assert opened().lets_through(handshake(), 10**9)


def test_nobody_becomes_another_by_authenticating_again() -> None:
    found = opened(5000)
    found.receive(handshake(), 1000)
    step = found.receive(token(BOB), 1000)
    said = answer(step, ApiKey.SASL_AUTHENTICATE, 2)
    assert said.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert said.error_message == "Cannot change principals during re-authentication from User.alice: User.bob"
    assert found.stage is Stage.FAILED
    other = opened(5000)
    assert other.receive(handshake("SCRAM-SHA-256"), 1000).failure is not None


INPUTS = [API_VERSIONS, METADATA, handshake(), handshake(version=0), handshake("SCRAM-SHA-256"), token(ALICE), ALICE,
          token(b"\0alice\0wrong"), token(BOB), b"", b"\0\x11", b"\xff" * 30]  # fmt: skip


@given(st.lists(st.one_of(st.sampled_from(INPUTS), st.binary(max_size=40)), max_size=8), st.sampled_from([0, 3000]))
def test_whoever_gets_through_has_given_a_right_password(inputs: list[bytes], max_reauth_ms: int) -> None:
    found, now_ms = gate(max_reauth_ms), 0
    right: set[str] = set()
    for each in inputs:
        now_ms += 900
        if found.lets_through(each, now_ms):
            assert found.principal in right
            continue
        if each in (token(ALICE), ALICE):
            right.add("User:alice")
        if each == token(BOB):
            right.add("User:bob")
        try:
            step = found.receive(each, now_ms)
        except ProtocolError:
            break
        if step.failure is not None:
            assert found.stage is Stage.FAILED
            break
        assert not (step.pass_on and step.answer)
    assert found.principal in right | {ANONYMOUS}

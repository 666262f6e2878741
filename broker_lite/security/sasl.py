"""Authentication on a SASL listener: handles a connection's frames until its client is authenticated.

Theory of operation: a state machine over complete frames, as Kafka's SaslServerAuthenticator. First come ApiVersions
and SaslHandshake, which selects the mechanism; then its tokens, in SaslAuthenticate requests, or bare after a
SaslHandshake v0; then the gate is open and frames go to the handlers. Before that only these three requests are
accepted. If sessions expire (KIP-368), the client authenticates again on the same connection, with the same mechanism
and user, or the connection is closed at the first request after the expiry. Pure: time and nonces are passed in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from sparkonce.broker_lite.security.acls import ANONYMOUS, USER_PREFIX
from sparkonce.broker_lite.security.mechanism import PLAIN, MechanismServer, PlainServer, SaslError
from sparkonce.broker_lite.security.scram import SCRAM_MECHANISMS, ScramCredential, ScramServer
from sparkonce.broker_lite.security.settings import SaslConfig
from sparkonce.kafka.protocol import apis
from sparkonce.kafka.protocol.apis import ApiKey
from sparkonce.kafka.protocol.errors import ErrorCode
from sparkonce.kafka.protocol.frames import SIZE, RequestHeader, encode_response_header, read_request_header
from sparkonce.kafka.protocol.primitives import Buffer

MIN_REAUTHENTICATION_INTERVAL_MS: Final = 1000
_HEADERS_FROM: Final = 1
_HANDSHAKE_KEY: Final = ApiKey.SASL_HANDSHAKE.to_bytes(2, "big")
_SHOWN_MECHANISM_LENGTH: Final = 40

CredentialOf = Callable[[str, str], ScramCredential | None]
"""Returns the SCRAM credential of a mechanism and a user."""


class Stage(Enum):
    """The stage of an authentication."""

    HANDSHAKE = "SASL handshake"
    AUTHENTICATE = "SASL authentication"
    OPEN = "open"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Step:
    """The effect of a frame.

    `answer` is a frame to send; `pass_on` means that the handlers answer it, as if the gate were open. With `failure`,
    a reason for the log, the answer is delayed, and then the connection is closed.
    """

    answer: bytes | None = None
    pass_on: bool = False
    failure: str | None = None


class SaslGate:
    """The authentication of one connection."""

    def __init__(self, config: SaslConfig, credential_of: CredentialOf, new_nonce: Callable[[], str]) -> None:
        self._config = config
        self._credential_of = credential_of
        self._new_nonce = new_nonce
        self._stage = Stage.HANDSHAKE
        self._mechanism = ""
        self._server: MechanismServer | None = None
        self._with_headers = False
        self._expires_ms: int | None = None
        self._reauthentication_began_ms: int | None = None
        self.principal = ANONYMOUS

    @property
    def stage(self) -> Stage:
        """The current stage."""
        return self._stage

    @property
    def is_open(self) -> bool:
        """Whether the client is authenticated as `principal`."""
        return self._stage is Stage.OPEN

    def lets_through(self, frame: Buffer, now_ms: int) -> bool:
        """Whether a frame is for the handlers; else it is for `receive`."""
        if self._stage is not Stage.OPEN:
            return False
        if self._expires_ms is None:
            return True
        began_ms = self._reauthentication_began_ms
        if bytes(frame[:2]) == _HANDSHAKE_KEY:
            # Too soon: the handler rejects it, as in Kafka, and the connection remains open.
            return began_ms is not None and now_ms - began_ms < MIN_REAUTHENTICATION_INTERVAL_MS
        return now_ms < self._expires_ms

    def receive(self, frame: Buffer, now_ms: int) -> Step:
        """Handle a frame that was not let through, without its four size bytes.

        Raises:
            ProtocolError: if the frame is malformed; the connection must be closed.
        """
        if self._stage is Stage.FAILED:
            return Step(failure="a request after a failed authentication")
        if self._stage is Stage.OPEN:
            if bytes(frame[:2]) != _HANDSHAKE_KEY:
                self._stage = Stage.FAILED
                return Step(failure=f"the session of {self.principal} has expired (connections.max.reauth.ms)")
            self._reauthentication_began_ms = now_ms
            self._stage = Stage.HANDSHAKE
        if self._stage is Stage.AUTHENTICATE and not self._with_headers:
            return self._take_bare_token(bytes(frame), now_ms)
        header = read_request_header(frame)
        body = frame[header.body_position :]
        if self._stage is Stage.AUTHENTICATE:
            if header.api_key != ApiKey.SASL_AUTHENTICATE:
                return self._refuse_state(header)
            wanted = apis.decode_request(header.api_key, header.api_version, body)
            return self._take_token(header, bytes(wanted.auth_bytes), now_ms)
        if header.api_key == ApiKey.API_VERSIONS:
            return Step(pass_on=True)
        if header.api_key != ApiKey.SASL_HANDSHAKE:
            return self._refuse_state(header)
        return self._shake_hands(header, apis.decode_request(header.api_key, header.api_version, body).mechanism)

    def _refuse_state(self, header: RequestHeader) -> Step:
        stage, self._stage = self._stage, Stage.FAILED
        return Step(failure=f"unexpected {ApiKey(header.api_key).name} request during {stage.value}")

    def _shake_hands(self, header: RequestHeader, mechanism: str) -> Step:
        shown = mechanism[:_SHOWN_MECHANISM_LENGTH]
        error, failure = ErrorCode.NONE, None
        if mechanism not in self._config.mechanisms:
            error, failure = ErrorCode.UNSUPPORTED_SASL_MECHANISM, f"SASL mechanism {shown!r} is not enabled"
        elif self._mechanism and mechanism != self._mechanism:
            # Kafka fails at the next step, with the same result: clients keep to one mechanism.
            error, failure = (
                ErrorCode.UNSUPPORTED_SASL_MECHANISM,
                f"re-authentication with another mechanism, {shown!r}",
            )
        else:
            self._mechanism = mechanism
            self._with_headers = header.api_version >= _HEADERS_FROM
            self._server = self._new_server(mechanism)
        self._stage = Stage.AUTHENTICATE if failure is None else Stage.FAILED
        return Step(_answer(header, error_code=int(error), mechanisms=list(self._config.mechanisms)), failure=failure)

    def _new_server(self, mechanism: str) -> MechanismServer:
        if mechanism == PLAIN:
            return PlainServer(self._config.users[PLAIN])
        return ScramServer(
            SCRAM_MECHANISMS[mechanism], lambda user: self._credential_of(mechanism, user), self._new_nonce()
        )

    def _take_token(self, header: RequestHeader, token: bytes, now_ms: int) -> Step:
        try:
            answer, lifetime_ms = self._evaluate(token, now_ms)
        except SaslError as failure:
            again = "re-authentication" if self.principal != ANONYMOUS else "authentication"
            shown = failure.shown or (
                f"Authentication failed during {again} due to invalid credentials with SASL mechanism {self._mechanism}"
            )
            fields = {
                "error_code": int(ErrorCode.SASL_AUTHENTICATION_FAILED),
                "error_message": shown,
                "auth_bytes": b"",
            }
            return Step(_answer(header, **fields), failure=self._failed(failure))
        return Step(
            _answer(header, error_code=0, error_message=None, auth_bytes=answer, session_lifetime_ms=lifetime_ms)
        )

    def _take_bare_token(self, token: bytes, now_ms: int) -> Step:
        try:
            answer, _ = self._evaluate(token, now_ms)
        except SaslError as failure:
            return Step(failure=self._failed(failure))  # bare tokens have no error response
        return Step(SIZE.pack(len(answer)) + answer)

    def _failed(self, failure: SaslError) -> str:
        self._stage = Stage.FAILED
        return f"authentication by {self._mechanism} failed: {failure}"

    def _evaluate(self, token: bytes, now_ms: int) -> tuple[bytes, int]:
        server = self._server
        assert server is not None
        answer = server.evaluate(token)
        if not server.complete:
            return answer, 0
        principal = USER_PREFIX + server.user
        if self.principal not in (ANONYMOUS, principal):
            raise SaslError(
                f"{self.principal} authenticates again as {principal}",
                f"Cannot change principals during re-authentication from {self.principal.replace(':', '.', 1)}: "
                f"{principal.replace(':', '.', 1)}",
            )
        lifetime_ms = self._config.max_reauth_ms[self._mechanism]
        self._expires_ms = now_ms + lifetime_ms if lifetime_ms > 0 else None
        self.principal, self._server, self._stage = principal, None, Stage.OPEN
        return answer, lifetime_ms


def _answer(header: RequestHeader, **fields: Any) -> bytes:
    key, version = header.api_key, header.api_version
    frame = encode_response_header(key, version, header.correlation_id)
    frame += apis.encode_response(apis.response(key, version, **fields), version)
    return SIZE.pack(len(frame)) + frame

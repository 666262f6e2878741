"""Tokens: from a server by a client's credentials, from a file, kept while they last; and how they reach the broker."""

from __future__ import annotations

import base64
import json
import struct
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.parse import parse_qs

import pytest

from sparkonce.kafka.client import oauth as oauth_module
from sparkonce.kafka.client.connection import SASL_AUTHENTICATE, SASL_HANDSHAKE, BrokerConnection, SaslError
from sparkonce.kafka.client.oauth import TokenError, token
from sparkonce.kafka.client.security import OAuth
from sparkonce.kafka.client.settings import ClientSettings, read_settings
from sparkonce.options import OptionError
from tests.unit.source.test_connection import VERSIONS, server

SECRET = "s3cret/&="
MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"


class TokenServer(HTTPServer):
    """Gives tokens t1, t2, … to client `me`, and keeps what it was asked."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), TokenRequest)
        self.asked: list[tuple[str, dict[str, list[str]]]] = []
        self.answer: bytes | None = None
        self.status = 200
        self.location: str | None = None
        self.speaks_http = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/token"


class TokenRequest(BaseHTTPRequestHandler):
    server: TokenServer

    def do_POST(self) -> None:
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        pair = base64.b64decode(self.headers["Authorization"].removeprefix("Basic ")).decode()
        self.server.asked.append((pair, form))
        if not self.server.speaks_http:
            self.wfile.write(b"junk\r\n\r\n")
            return
        said = {"access_token": f"t{len(self.server.asked)}", "expires_in": 3600}
        self.send_response(self.server.status if pair.startswith("me:") else 401)
        if self.server.location is not None:
            self.send_header("Location", self.server.location)
        self.end_headers()
        self.wfile.write(self.server.answer or json.dumps(said).encode())

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def tokens(monkeypatch: pytest.MonkeyPatch) -> Iterator[TokenServer]:
    monkeypatch.setattr(oauth_module, "_tokens", {})
    listening = TokenServer()
    thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield listening
    finally:
        listening.shutdown()
        thread.join()
        listening.server_close()


def jwt(expires: float) -> str:
    parts = [json.dumps(each).encode() for each in ({"alg": "none"}, {"exp": expires})]
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts) + "."


def test_a_token_is_had_by_a_client_s_credentials_and_kept(tokens: TokenServer) -> None:
    asking = OAuth(tokens.url, "me", SECRET, scope="kafka")
    assert [token(asking), token(asking)] == ["t1", "t1"]
    assert tokens.asked == [(f"me:{SECRET}", {"grant_type": ["client_credentials"], "scope": ["kafka"]})]
    assert token(OAuth(tokens.url, "me", SECRET, url_encoded=True)) == "t2"
    assert tokens.asked[1] == ("me:s3cret%2F%26%3D", {"grant_type": ["client_credentials"]})


def test_a_token_that_is_about_to_expire_is_not_used_again(tokens: TokenServer) -> None:
    asking = OAuth(tokens.url, "me", SECRET)
    tokens.answer = b'{"access_token": "short", "expires_in": 20}'
    token(asking)
    token(asking)
    assert len(tokens.asked) == 2
    tokens.answer = json.dumps({"access_token": jwt(4e9)}).encode()
    assert token(asking) == token(asking) == jwt(4e9)
    assert len(tokens.asked) == 3


def test_a_token_from_a_file(tokens: TokenServer, tmp_path: Path) -> None:
    file = tmp_path / "token file"
    asking = OAuth(file.as_uri())
    file.write_text(jwt(1) + "\n")
    assert token(asking) == jwt(1)
    file.write_text(jwt(4e9))
    assert token(asking) == jwt(4e9)
    file.unlink()
    assert token(asking) == jwt(4e9)  # it lasts
    with pytest.raises(TokenError, match=r"no token could be read from .*nowhere: FileNotFoundError"):
        token(OAuth((tmp_path / "nowhere").as_uri()))


@pytest.mark.parametrize("answer", [b"{}", b"[1]", b'{"access_token": 7}', b"no JSON"])
def test_a_server_that_gives_no_token(tokens: TokenServer, answer: bytes) -> None:
    tokens.answer = answer
    with pytest.raises(TokenError, match=r"127\.0\.0\.1:\d+/token") as caught:
        token(OAuth(f"{tokens.url}?key=passw0rd", "me", SECRET))
    assert "s3cret" not in str(caught.value)
    assert "passw0rd" not in str(caught.value)


def test_a_client_that_is_not_known(tokens: TokenServer) -> None:
    with pytest.raises(
        TokenError, match=r"no token to client 'you': HTTP 401; check kafka\.sasl\.oauthbearer"
    ) as caught:
        token(OAuth(tokens.url, "you", SECRET))
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_the_secret_follows_no_redirect(tokens: TokenServer, status: int) -> None:
    tokens.status, tokens.location = status, f"{tokens.url}/elsewhere?key=passw0rd"
    with pytest.raises(TokenError, match=rf"redirects to .*/token/elsewhere \(HTTP {status}\)") as caught:
        token(OAuth(tokens.url, "me", SECRET))
    assert "passw0rd" not in str(caught.value)
    assert len(tokens.asked) == 1


def test_a_server_that_is_away_may_come_back(tokens: TokenServer) -> None:
    """So it is no PermissionError: the client tries again, as long as it may take to connect."""
    with pytest.raises(ConnectionError, match=r"http://127\.0\.0\.1:1/token returned no token: .*refused"):
        token(OAuth("http://127.0.0.1:1/token", "me", SECRET))
    tokens.status = 503
    with pytest.raises(ConnectionError, match="HTTP 503"):
        token(OAuth(tokens.url, "me", SECRET))
    tokens.status = 429
    with pytest.raises(ConnectionError, match="HTTP 429"):
        token(OAuth(tokens.url, "me", SECRET))


def test_an_answer_that_is_no_http_may_be_followed_by_one(tokens: TokenServer) -> None:
    tokens.speaks_http = False
    with pytest.raises(ConnectionError, match="returned no token: BadStatusLine"):
        token(OAuth(tokens.url, "me", SECRET))


def settings(url: str, servers: dict[str, str], **more: str) -> ClientSettings:
    given = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": url,
        **{name.replace("_", "."): text for name, text in more.items()},
    }
    return read_settings({**servers, **{f"kafka.{name}": text for name, text in given.items()}})


def test_the_broker_gets_token_and_extensions(tokens: TokenServer) -> None:
    heard: list[bytes] = []

    def broker(api_key: int, body: bytes) -> bytes:
        heard.append(body)
        if api_key == SASL_HANDSHAKE:
            return struct.pack(">hi", 0, 0)
        return struct.pack(">hhi", 0, -1, 0) if api_key == SASL_AUTHENTICATE else VERSIONS

    line = f'{MODULE} required clientId="me" clientSecret="{SECRET}" scope="s" extension_logicalCluster="lkc-1";'
    with server(broker) as servers:
        found = settings(tokens.url, servers, sasl_jaas_config=line)
        assert "s3cret" not in repr(found)
        (address,) = found.bootstrap_servers
        BrokerConnection(*address, found).close()
    assert heard[-1][4:] == b"n,,\x01auth=Bearer t1\x01logicalCluster=lkc-1\x01\x01"
    assert tokens.asked == [(f"me:{SECRET}", {"grant_type": ["client_credentials"], "scope": ["s"]})]


def test_a_token_that_the_broker_refuses(tokens: TokenServer) -> None:
    """RFC 7628: it says why, is answered with one byte, and refuses."""
    heard: list[bytes] = []

    def broker(api_key: int, body: bytes) -> bytes:
        if api_key == SASL_HANDSHAKE:
            return struct.pack(">hi", 0, 0)
        if api_key != SASL_AUTHENTICATE:
            return VERSIONS
        heard.append(body[4:])
        reason = b'{"status":"invalid_token"}'
        return struct.pack(">hhi", 0, -1, len(reason)) + reason if len(heard) == 1 else struct.pack(">hhi", 58, -1, 0)

    with server(broker) as servers:
        found = settings(
            tokens.url,
            servers,
            sasl_oauthbearer_client_credentials_client_id="me",
            sasl_oauthbearer_client_credentials_client_secret=SECRET,
        )
        with pytest.raises(SaslError, match=r"refused the token .OAUTHBEARER.: 58; check kafka\.sasl\.oauthbearer"):
            BrokerConnection(*found.bootstrap_servers[0], found)
    assert heard[1] == b"\x01"
    assert found.sasl is not None
    assert found.sasl.oauth is not None
    assert token(found.sasl.oauth) == "t2", "one that was refused is not used again"


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"sasl_oauthbearer_token_endpoint_url": "ftp://h"}, "an http, https or file URL"),
        ({"sasl_oauthbearer_token_endpoint_url": "https://u:s3cret@h/"}, "must be without user and password"),
        ({}, "needs kafka.sasl.oauthbearer.client.credentials.client.id and"),
        (
            {"sasl_login_callback_handler_class": "my.Handler"},
            "handler.class=my.Handler: a Java class cannot be loaded; tokens are obtained by",
        ),
        (
            {"sasl_jaas_config": "x.PlainLoginModule required username=u password=s3cret;"},
            "not for kafka.sasl.mechanism",
        ),
    ],
)
def test_what_is_missing_or_cannot_be_had_is_told(more: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message.replace(".", r"\.")) as caught:
        settings("http://h/", {"kafka.bootstrap.servers": "h:1"}, **more)
    assert "s3cret" not in str(caught.value)


def test_kafka_s_own_handler_is_what_is_done_here() -> None:
    found = settings(
        "http://h/",
        {"kafka.bootstrap.servers": "h:1"},
        sasl_login_callback_handler_class=f"{MODULE.rpartition('.')[0]}.OAuthBearerLoginCallbackHandler",
        sasl_jaas_config=f'{MODULE} required clientId="me" clientSecret="{SECRET}";',
    )
    assert found.sasl is not None
    assert found.sasl.oauth == OAuth("http://h/", "me", SECRET)

"""Users in Kafka's JAAS lines, and the mechanism PLAIN."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkonce.broker_lite.security.mechanism import PlainServer, SaslError
from sparkonce.kafka.jaas import PLAIN_MODULE, JaasError, read_jaas

SECRET = "s3cret"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ('username="admin" password="a" user_alice="b c" user_bob=d', {"alice": "b c", "bob": "d"}),
        ("user_alice='it\"s'", {"alice": 'it"s'}),
        (r'user_alice="a\"b\\c"', {"alice": r'a"b\c'}),
        (r'user_alice="\101b\x"', {"alice": "Abx"}),
        ('\n  user_alice="a=;b"\n  user_bob = "x"', {"alice": "a=;b", "bob": "x"}),
        ('username="admin"', {}),
    ],
)
def test_users_of_a_line(options: str, expected: dict[str, str]) -> None:
    module = read_jaas(f"{PLAIN_MODULE} required {options} ;")
    assert (module.name, module.users) == (PLAIN_MODULE, expected)
    assert "options" not in repr(module)


@pytest.mark.parametrize(
    "line",
    [
        "",
        SECRET,
        f'{PLAIN_MODULE} required user_a="{SECRET}"',
        f'{PLAIN_MODULE} required user_a="{SECRET};',
        f'{PLAIN_MODULE} {SECRET} user_a="x";',
        f'{PLAIN_MODULE} required "{SECRET}";',
        f'{PLAIN_MODULE} required user_a "{SECRET}" user_b;',
        f'{PLAIN_MODULE} required user_a="{SECRET}"; {PLAIN_MODULE} required;',
    ],
)
def test_a_malformed_line_is_refused_and_not_shown(line: str) -> None:
    with pytest.raises(JaasError) as raised:
        read_jaas(line)
    assert SECRET not in str(raised.value)


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(JaasError):
        read_jaas(text)
    with contextlib.suppress(JaasError):
        read_jaas(f"{PLAIN_MODULE} required {text};")


def test_a_right_password() -> None:
    for token in (b"\0alice\0" + SECRET.encode(), b"alice\0alice\0" + SECRET.encode()):
        plain = PlainServer({"alice": SECRET})
        assert plain.evaluate(token) == b""
        assert plain.complete
        assert plain.user == "alice"


@pytest.mark.parametrize(
    ("token", "shown"),
    [
        (b"\0alice\0wrong", "Authentication failed: Invalid username or password"),
        (b"\0bob\0s3cret", "Authentication failed: Invalid username or password"),
        (b"bob\0alice\0s3cret", "Authentication failed: Client requested an authorization id that is different from "
         "username"),
        (b"\0alice\0", None),
        (b"\0\0s3cret", None),
        (b"alice", None),
        (b"\0alice\0s3cret\0", None),
        (b"\0alice\0\xff", None),
    ],
)  # fmt: skip
def test_what_is_refused_and_what_the_client_hears(token: bytes, shown: str | None) -> None:
    plain = PlainServer({"alice": SECRET})
    with pytest.raises(SaslError) as raised:
        plain.evaluate(token)
    assert raised.value.shown == shown
    assert SECRET not in str(raised.value)
    assert not plain.complete

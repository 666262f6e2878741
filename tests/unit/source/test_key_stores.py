"""Java's key stores, made by keytool (key_stores/make.sh), and what is none: parsed, or an error without a secret."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkonce.kafka.client.security import Tls
from sparkonce.kafka.client.tls import lines, openssl_name, tls_context
from sparkonce.kafka.key_stores import KeyStoreError, read_key_store
from sparkonce.options import OptionError
from tests.cases import each_case
from tests.chance import examples

STORES = Path(__file__).parent / "key_stores"
PASSWORD, KEY_PASSWORD = "store-s3cret", "key-s3cret"


def certificates(text: str) -> list[str]:
    return [block + "-----END CERTIFICATE-----\n" for block in text.split("-----END CERTIFICATE-----\n")[:-1]]


def pem(name: str, label: str) -> list[str]:
    text = (STORES / name).read_text()
    end = f"-----END {label}-----\n"
    return [
        f"-----BEGIN {label}-----" + each.partition(end)[0] + end for each in text.split(f"-----BEGIN {label}-----")[1:]
    ]


@pytest.mark.parametrize("name", ["trust.jks", "trust.p12"])
def test_a_trust_store_holds_what_was_put_in(name: str) -> None:
    store = read_key_store((STORES / name).read_bytes(), PASSWORD)
    assert store is not None
    assert certificates(store.trusted) == pem("authority.pem", "CERTIFICATE")
    assert store.key is None


@pytest.mark.parametrize(("name", "key_password"), [("client.jks", KEY_PASSWORD), ("client.p12", None)])
def test_a_key_store_holds_what_was_put_in(name: str, key_password: str | None) -> None:
    store = read_key_store((STORES / name).read_bytes(), PASSWORD, key_password)
    assert store is not None
    assert [store.key] == pem("client.pem", "PRIVATE KEY")
    assert certificates(store.chain) == pem("client.pem", "CERTIFICATE")
    assert "PRIVATE" not in repr(store)


def test_a_jks_trust_store_can_be_read_without_its_password() -> None:
    store = read_key_store((STORES / "trust.jks").read_bytes(), None)
    assert store is not None
    assert store.trusted


@pytest.mark.parametrize("password", [PASSWORD, None])
def test_keys_in_a_trust_store_need_no_password(password: str | None) -> None:
    """Java never looks at them; they may have a password of their own, for which there is no setting here."""
    store = read_key_store((STORES / "client.jks").read_bytes(), password, with_key=False)
    assert store is not None
    assert store.key is None
    own = tls_context(Tls(ca_location=str(STORES / "trust.jks"), ca_password=PASSWORD))
    assert own.get_ca_certs()
    with pytest.raises(OptionError, match="there is no certificate in it that could be trusted"):
        tls_context(Tls(ca_location=str(STORES / "client.jks"), ca_password=PASSWORD))


def test_what_is_no_store_is_none() -> None:
    assert read_key_store((STORES / "client.pem").read_bytes(), PASSWORD) is None
    assert read_key_store(b"", PASSWORD) is None


@each_case(
    ("name", "password", "key_password", "message"),
    [
        ("trust.jks", "wr0ng", None, "the password is wrong"),
        ("trust.p12", "wr0ng", None, "the password is wrong"),
        ("trust.p12", None, None, "needs a password"),
        ("client.jks", None, None, "needs a password"),
        ("client.jks", PASSWORD, "wr0ng", "the password of its private key is wrong"),
        ("client.jks", PASSWORD, None, "the password of its private key is wrong"),
    ],
)
def test_passwords_that_do_not_fit(name: str, password: str | None, key_password: str | None, message: str) -> None:
    with pytest.raises(KeyStoreError, match=message) as caught:
        read_key_store((STORES / name).read_bytes(), password, key_password)
    assert "s3cret" not in str(caught.value)
    assert "wr0ng" not in str(caught.value)


def test_jceks_is_named_with_the_way_out() -> None:
    with pytest.raises(KeyStoreError, match="JCEKS store; keytool"):
        read_key_store(b"\xce\xce\xce\xce" + bytes(20), PASSWORD)


@settings(max_examples=examples(150), deadline=None)
@given(st.sampled_from(["trust.jks", "client.jks"]), st.integers(0, 2**32))
def test_damaged_stores_are_errors_and_nothing_else(name: str, seed: int) -> None:
    """Without a store's password the digest is not there to tell, so the parser itself must not fall over."""
    chance = random.Random(seed)
    data = bytearray((STORES / name).read_bytes())
    for _ in range(chance.randint(1, 4)):
        data[chance.randrange(4, len(data))] = chance.randrange(256)
    del data[chance.randrange(len(data) // 2, len(data) + 1) :]
    with contextlib.suppress(KeyStoreError):
        read_key_store(bytes(data), None, KEY_PASSWORD)


@pytest.mark.parametrize("broken", [lambda text: text.replace("\n", " "), lambda text: text.replace("\n", "\\n"), str])
def test_pem_is_put_into_lines_again(broken: object) -> None:
    text = (STORES / "client.pem").read_text()
    assert callable(broken)
    assert lines(broken(text)) == text


@each_case(
    ("java", "openssl"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "ECDHE-RSA-AES256-GCM-SHA384"),
        ("TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256", "ECDHE-ECDSA-AES128-SHA256"),
        ("TLS_RSA_WITH_AES_128_CBC_SHA", "AES128-SHA"),
        ("TLS_DHE_RSA_WITH_AES_256_GCM_SHA384", "DHE-RSA-AES256-GCM-SHA384"),
        ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-RSA-CHACHA20-POLY1305"),
        ("TLS_AES_256_GCM_SHA384", "TLS_AES_256_GCM_SHA384"),
        ("ECDHE-RSA-AES256-GCM-SHA384", "ECDHE-RSA-AES256-GCM-SHA384"),
    ],
)
def test_names_of_suites(java: str, openssl: str) -> None:
    assert openssl_name(java) == openssl

"""Names in certificates, as Java writes them."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509 import ObjectIdentifier
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from sparkonce.broker_lite.security.principals import PrincipalError, mapped, read_rules, subject_of
from tests.certificates import Authority, Subject


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        ([(NameOID.COMMON_NAME, "alice")], "CN=alice"),
        (
            [(NameOID.COUNTRY_NAME, "NL"), (NameOID.STATE_OR_PROVINCE_NAME, "NH"), (NameOID.LOCALITY_NAME, "A'dam"),
             (NameOID.ORGANIZATION_NAME, "Ex, Inc."), (NameOID.ORGANIZATIONAL_UNIT_NAME, 'a+b"c'),
             (NameOID.COMMON_NAME, "alice")],
            r"CN=alice,OU=a\+b\"c,O=Ex\, Inc.,L=A'dam,ST=NH,C=NL",
        ),
        ([(NameOID.DOMAIN_COMPONENT, "org"), (NameOID.USER_ID, "42"), (NameOID.STREET_ADDRESS, "x")],
         "STREET=x,UID=42,DC=org"),
        ([(NameOID.COMMON_NAME, " #a ")], r"CN=\ #a\ "),
        ([(NameOID.COMMON_NAME, "#a;<b>\\")], r"CN=\#a\;\<b\>\\"),
        ([(NameOID.COMMON_NAME, "ü€")], "CN=ü€"),
        ([(NameOID.EMAIL_ADDRESS, "a@b")], "1.2.840.113549.1.9.1=#1603614062"),
        ([(ObjectIdentifier("2.999.1"), "x"), (NameOID.COMMON_NAME, "a")], "CN=a,2.999.1=#0c0178"),
    ],
)  # fmt: skip
def test_the_subject_in_the_form_of_rfc_2253(authority: Authority, subject: Subject, expected: str) -> None:
    certificate = authority.issue("one.pem", subject).certificate.public_bytes(Encoding.DER)
    assert subject_of(certificate) == expected


def test_a_cut_off_certificate_gives_the_modules_own_error(authority: Authority) -> None:
    whole = authority.issue("two.pem").certificate.public_bytes(Encoding.DER)
    for size in range(0, len(whole) // 2, 7):
        with pytest.raises(PrincipalError):
            subject_of(whole[:size])


@given(st.binary(max_size=60))
def test_any_bytes_give_a_name_or_the_modules_own_error(data: bytes) -> None:
    with contextlib.suppress(PrincipalError):
        subject_of(data)


NAME = "CN=Kafka-User,OU=Dept,O=Example,C=NL"


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ("", NAME),
        ("DEFAULT", NAME),
        ("RULE:^CN=([^,]+),.*$/$1/", "Kafka-User"),
        ("RULE:^CN=([^,]+),.*$/$1/L", "kafka-user"),
        ("RULE:^CN=([^,]+),OU=([^,]+),.*$/$2.$1/U", "DEPT.KAFKA-USER"),
        ("RULE:^OU=.*$/x/, RULE:^CN=(.*?),.*$/$1@cluster/L, DEFAULT", "kafka-user@cluster"),
        ("RULE:^OU=.*$/x/ , DEFAULT", NAME),
        (r"RULE:^CN=(.*?),.*$/a\$b\/$1/", "a$b/Kafka-User"),
    ],
)
def test_rules_change_the_name(rules: str, expected: str) -> None:
    assert mapped(NAME, read_rules(rules)) == expected


def test_a_name_that_no_rule_fits() -> None:
    with pytest.raises(PrincipalError, match="no rule"):
        mapped(NAME, read_rules("RULE:^OU=.*$/x/"))


@pytest.mark.parametrize("text", ["RULE", "RULE:a/b", "RULE:(/b/", "DEFAULT DEFAULT", "RULE:a/b/X"])
def test_rules_that_cannot_be_read(text: str) -> None:
    with pytest.raises(PrincipalError):
        read_rules(text)


def test_the_authority_writes_its_file(authority: Authority) -> None:
    assert Path(authority.file).read_text() == authority.text

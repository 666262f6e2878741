"""Access control lists and SCRAM users in their files: kept, durable when acknowledged, refused when damaged."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from sparkonce.broker_lite.log.storage import DiskStorage
from sparkonce.broker_lite.security.acls import (
    Binding,
    BindingFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    Rule,
)
from sparkonce.broker_lite.security.authorizer import ACLS_FILE, Authorizer, SecurityFileError, super_users
from sparkonce.broker_lite.security.credentials import CREDENTIALS_FILE, ScramCredentials
from sparkonce.broker_lite.security.scram import SCRAM_SHA_256, SCRAM_SHA_512, ScramCredential
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError

ADMIN = "User:CN=admin,O=Example"
HOST = "10.0.0.1"
READ_T = (Operation.READ, ResourceType.TOPIC, "t")


def binding(principal: str, permission: Permission = Permission.ALLOW) -> Binding:
    return Binding(ResourceType.TOPIC, "t", PatternType.LITERAL, Rule(principal, "*", Operation.READ, permission))


def authorizer(directory: Path, allow_if_none: bool = False) -> Authorizer:
    return Authorizer(DiskStorage(), str(directory), super_users(f"{ADMIN}; User:root ;"), allow_if_none)


def credential(password: str) -> ScramCredential:
    return ScramCredential.of_password(SCRAM_SHA_256, b"salt", password, 4096)


def test_lists_decide_at_once_and_after_a_restart(tmp_path: Path) -> None:
    first = authorizer(tmp_path)
    assert not first.allows("User:a", HOST, *READ_T)
    first.add([binding("User:a"), binding("User:a")])
    assert first.allows("User:a", HOST, *READ_T)
    first.add([binding("User:a", Permission.DENY), binding("User:b")])
    assert not first.allows("User:a", HOST, *READ_T)
    first.remove([binding("User:a", Permission.DENY), binding("User:nobody")])
    again = authorizer(tmp_path)
    assert again.select(BindingFilter()) == first.select(BindingFilter()) == [binding("User:a"), binding("User:b")]
    assert again.allows("User:a", HOST, *READ_T)
    assert not again.allows("User:c", HOST, *READ_T)


def test_super_users_may_do_everything_whatever_the_lists_say(tmp_path: Path) -> None:
    found = authorizer(tmp_path)
    found.add([binding(ADMIN, Permission.DENY), binding("User:*", Permission.DENY)])
    for user in (ADMIN, "User:root"):
        assert found.allows(user, HOST, *READ_T)
        assert found.allows_any(user, HOST, Operation.WRITE, ResourceType.TOPIC)


def test_everyone_if_there_is_no_acl(tmp_path: Path) -> None:
    found = authorizer(tmp_path, allow_if_none=True)
    assert found.allows("User:a", HOST, *READ_T)
    assert found.allows_any("User:a", HOST, Operation.WRITE, ResourceType.TOPIC)
    found.add([binding("User:b")])
    assert not found.allows("User:a", HOST, *READ_T)


class FullDisk(DiskStorage):
    """A disk that takes no more."""

    def write(self, path: str, data: object, *, durable: bool, private: bool = False) -> None:
        raise OSError(28, "No space left on device")


def test_what_cannot_be_written_does_not_decide(tmp_path: Path) -> None:
    found = Authorizer(FullDisk(), str(tmp_path))
    with pytest.raises(KafkaError) as raised:
        found.add([binding("User:a")])
    assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert not found.allows("User:a", HOST, *READ_T)
    users = ScramCredentials(FullDisk(), str(tmp_path), {})
    with pytest.raises(KafkaError):
        users.change([], {("SCRAM-SHA-256", "a"): credential("x")})
    assert users.get("SCRAM-SHA-256", "a") is None


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{}",
        "[]",
        '{"version": 2, "acls": [], "credentials": []}',
        '{"version": 1, "acls": [{}], "credentials": [{}]}',
    ],
)
def test_a_damaged_file_stops_the_broker(tmp_path: Path, content: str) -> None:
    (tmp_path / ACLS_FILE).write_text(content)
    (tmp_path / CREDENTIALS_FILE).write_text(content)
    with pytest.raises(SecurityFileError, match=ACLS_FILE):
        authorizer(tmp_path)
    with pytest.raises(match=CREDENTIALS_FILE):
        ScramCredentials(DiskStorage(), str(tmp_path), {})


def test_credentials_are_kept_salted_and_for_the_owners_eyes_only(tmp_path: Path) -> None:
    configured = {("SCRAM-SHA-256", "carol"): credential("configured"), ("SCRAM-SHA-512", "dave"): credential("d")}
    users = ScramCredentials(DiskStorage(), str(tmp_path), configured)
    changes = {
        (SCRAM_SHA_256.name, "alice"): credential("s3cret"),
        (SCRAM_SHA_512.name, "alice"): credential("x"),
        (SCRAM_SHA_256.name, "carol"): credential("changed"),
    }
    users.change([], changes)
    users.change([(SCRAM_SHA_512.name, "alice")], {})
    again = ScramCredentials(DiskStorage(), str(tmp_path), configured)
    assert again.users() == users.users()
    assert {user: list(found) for user, found in again.users().items()} == {
        "alice": ["SCRAM-SHA-256"], "carol": ["SCRAM-SHA-256"], "dave": ["SCRAM-SHA-512"]
    }  # fmt: skip
    assert again.get("SCRAM-SHA-256", "alice") == credential("s3cret")
    assert again.get("SCRAM-SHA-256", "carol") == credential("changed")
    assert again.is_kept("SCRAM-SHA-256", "carol")
    assert not again.is_kept("SCRAM-SHA-512", "dave")
    file = tmp_path / CREDENTIALS_FILE
    assert os.stat(file).st_mode & 0o777 == 0o600
    assert "s3cret" not in file.read_text()
    assert len(json.loads(file.read_text())["credentials"]) == 2

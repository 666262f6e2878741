"""Options of object stores: obstore sends for each what delta-rs sends."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError
from deltalake.fs import DeltaStorageHandler

from sparkonce.offset_store.errors import OffsetStoreError
from sparkonce.offset_store.locations import Location
from sparkonce.offset_store.log.object_options import StoreOptions, duration
from sparkonce.offset_store.log.stores import log_storage
from tests.cases import each_case
from tests.unit.offsets.recording_store import Recorded, recording_store

COMMIT = f"{0:020d}.json"
S3, GOOGLE, AZURE = "s3://bucket/a täble", "gs://bucket/t", "abfss://box@account.dfs.core.windows.net/t"
KEY = "c2VjcmV0"
IN_S3: Mapping[str, str] = {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_ALLOW_HTTP": "true"}
IN_AZURE: Mapping[str, str] = {"azure_storage_account_key": KEY, "allow_http": "true"}
S3_OPTIONS: tuple[Mapping[str, str], ...] = (
    {},
    {"AWS_REGION": "eu-west-1"},
    {"AWS_DEFAULT_REGION": "eu-west-2"},
    {"region": "eu-west-3"},
    {"AWS_SESSION_TOKEN": "token"},
    {"aws_token": "token"},
    {"AWS_SKIP_SIGNATURE": "true"},
    {"AWS_UNSIGNED_PAYLOAD": "true"},
    {"AWS_REQUEST_PAYER": "true"},
    {"AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "true"},
    {"AWS_SERVER_SIDE_ENCRYPTION": "aws:kms", "AWS_SSE_KMS_KEY_ID": "key", "AWS_SSE_BUCKET_KEY_ENABLED": "true"},
    {"AWS_CHECKSUM_ALGORITHM": "sha256"},
    {"AWS_BUCKET": "other"},
    {"default_content_type": "text/plain"},
    {"NONSENSE": "x", "aws_nonsense": "x", "AWS_S3_ADDRESSING_STYLE": "virtual"},
    {"AWS_S3_ALLOW_UNSAFE_RENAME": "true"},
    {"timeout": "20s", "connect_timeout": "3s", "max_retries": "1", "retry_timeout": "1m 30s"},
    {"user_agent": "me", "http1_only": "true", "pool_idle_timeout": "15s", "pool_max_idle_per_host": "2"},
)
SOLE = frozenset({"region", "aws_token", "AWS_SKIP_SIGNATURE", "AWS_UNSIGNED_PAYLOAD"})
"""Options of S3 that mean the same as others, or hide what they do."""
AZURE_OPTIONS: tuple[Mapping[str, str], ...] = (
    {},
    {"AZURE_STORAGE_ACCOUNT_NAME": "other", "azure_container_name": "other"},
    {"azure_storage_account_key": "", "AZURE_STORAGE_SAS_TOKEN": "sv=1&sig=ab%2Bcd"},
    {"azure_storage_account_key": "", "AZURE_STORAGE_TOKEN": "bearer"},
    {"azure_skip_signature": "true"},
    {"timeout": "20s", "nonsense": "x"},
)
GOOGLE_OPTIONS: tuple[Mapping[str, str], ...] = ({}, {"google_bucket": "other", "timeout": "20s", "nonsense": "x"})


@pytest.fixture(scope="module")
def recorded() -> Iterator[Recorded]:
    with recording_store() as running:
        yield running


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave no settings in the environment."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)


def sent(recorded: Recorded, address: str, options: Mapping[str, str]) -> tuple[list[Any], list[Any]]:
    """Return the requests by which both look for a file and put one: of delta-rs, and ours."""
    recorded.requests.clear()
    DeltaStorageHandler(address, dict(options)).get_file_info([f"_delta_log/{COMMIT}"])
    delta_rs = recorded.take("HEAD")
    with pytest.raises(TableNotFoundError):  # the server says that nothing is there
        DeltaTable.create(address, pa.schema([("v", pa.int64())]), storage_options=dict(options))
    delta_rs += recorded.take("PUT")
    log = log_storage(Location.parse(address), options)
    log.tag(COMMIT)
    ours = recorded.take("HEAD")
    log.put_if_absent(COMMIT, b"data")
    return delta_rs, ours + recorded.take("PUT")


def test_many_options_of_s3_at_once(recorded: Recorded) -> None:
    given = {name: value for options in S3_OPTIONS if not SOLE & options.keys() for name, value in options.items()}
    delta_rs, ours = sent(recorded, S3, {**IN_S3, "AWS_ENDPOINT_URL": recorded.address, **given})
    assert len(ours) == 2
    assert ours == delta_rs


@pytest.mark.lab
@each_case(("number", "given"), enumerate(S3_OPTIONS))
def test_each_option_of_s3(recorded: Recorded, number: int, given: Mapping[str, str]) -> None:
    change = (str, str.lower)[number % 2]
    options = {**IN_S3, "AWS_ENDPOINT_URL": recorded.address, **given}
    delta_rs, ours = sent(recorded, S3, {change(name): value for name, value in options.items()})
    assert len(ours) == 2
    assert ours == delta_rs


@each_case(
    "name", ["my täble", "a%20b", "a+b=c&d", "100%", "a*b[1]", "日本", "x:y@z", "a#b", "a?b", "a/../b", "%2525", ""]
)
def test_addresses(recorded: Recorded, name: str) -> None:
    address, options = f"s3://bucket/{name}", {**IN_S3, "AWS_ENDPOINT_URL": recorded.address}
    DeltaStorageHandler(address, options).get_file_info([f"_delta_log/{COMMIT}"])
    ((delta_rs, _),) = recorded.take("HEAD")
    log_storage(Location.parse(address), options).tag(COMMIT)
    ((ours, _),) = recorded.take("HEAD")
    assert ours == delta_rs


@each_case("given", AZURE_OPTIONS)
def test_options_of_azure(recorded: Recorded, given: Mapping[str, str]) -> None:
    options = {name: value for name, value in {**IN_AZURE, **given}.items() if value}
    delta_rs, ours = sent(recorded, AZURE, {**options, "AZURE_STORAGE_ENDPOINT": recorded.address})
    assert len(ours) == 2
    assert ours == delta_rs


@each_case("given", GOOGLE_OPTIONS)
def test_options_of_google(recorded: Recorded, given: Mapping[str, str]) -> None:
    account = {"gcs_base_url": recorded.address, "disable_oauth": True, "client_email": "", "private_key": ""}
    key = json.dumps({**account, "private_key_id": ""})
    delta_rs, ours = sent(recorded, GOOGLE, {"google_service_account_key": key, "allow_http": "true", **given})
    assert len(ours) == 2
    assert ours == delta_rs


@pytest.mark.parametrize(
    ("name", "value"),
    [("AWS_REGION", "eu-west-1"), ("REGION", "eu-west-2"), ("AWS_ENDPOINT_URL_S3", ""), ("AWS_BUCKET", "x")],
)
def test_the_environment_of_s3(recorded: Recorded, monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value or recorded.address)
    options = {**IN_S3, "AWS_ENDPOINT_URL": recorded.address if value else "http://127.0.0.1:1"}
    for name, value in options.items():
        monkeypatch.setenv(name, value)
    for given in ({}, {"AWS_ACCESS_KEY_ID": "of the option"}):
        delta_rs, ours = sent(recorded, S3, given)
        assert len(ours) == 2
        assert ours == delta_rs


PROFILES = """
[default]
aws_access_key_id = of-default
aws_secret_access_key = secret
[other]
aws_access_key_id = of-other
aws_secret_access_key = secret
aws_session_token = token
[process]
credential_process = echo '{"Version": 1, "AccessKeyId": "of-process", "SecretAccessKey": "secret"}'
"""


@pytest.mark.lab
@each_case(
    ("profile", "options", "key"),
    [
        ("default", {}, "of-default"),
        ("other", {}, "of-other"),
        ("process", {}, "of-process"),
        ("other", {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "secret"}, "id"),
        ("other", {"AWS_SKIP_SIGNATURE": "true"}, ""),
    ],
)
def test_profiles_of_aws(
    recorded: Recorded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, profile: str, options: dict[str, str], key: str
) -> None:
    (tmp_path / "profiles").write_text(PROFILES)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "profiles"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_PROFILE", profile)
    forced = {"AWS_ALLOW_HTTP": "true", "AWS_FORCE_CREDENTIAL_LOAD": "true", "AWS_REGION": "eu-west-1", **options}
    delta_rs, ours = sent(recorded, S3, {**forced, "AWS_ENDPOINT_URL": recorded.address})
    assert len(ours) == 2
    assert ours == delta_rs
    assert f"Credential={key}/" in ours[0][1].get("authorization", "Credential=/")


def test_a_profile_counts_without_an_endpoint_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "profiles").write_text(PROFILES)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "profiles"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "profiles"))  # without any section of its own
    monkeypatch.setenv("AWS_PROFILE", "other")
    read = StoreOptions.read(Location.parse(S3), {})
    assert ("aws_access_key_id", "of-other") in read.config
    assert "of-other" not in repr(read)
    for options in ({"endpoint_url": "http://h"}, {"AWS_ACCESS_KEY_ID": "id"}):
        assert ("aws_access_key_id", "of-other") not in StoreOptions.read(Location.parse(S3), options).config
    monkeypatch.setenv("AWS_PROFILE", "process")
    assert StoreOptions.read(Location.parse(S3), {}).found_by_boto3 == ("profile", "process")


def test_a_role_to_assume_needs_boto3(monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"AWS_IAM_ROLE_ARN": "arn:aws:iam::1:role/a", "AWS_IAM_ROLE_SESSION_NAME": "b"}
    read = StoreOptions.read(Location.parse(S3), options)
    assert read.found_by_boto3 == ("arn:aws:iam::1:role/a", "b")
    monkeypatch.setitem(sys.modules, "obstore.auth.boto3", None)
    with pytest.raises(OffsetStoreError, match=r"AWS_IAM_ROLE_ARN=arn.*are found by boto3, which is missing: pip inst"):
        log_storage(Location.parse(S3), options)


def test_requests_are_repeated_as_often(recorded: Recorded) -> None:
    options = {
        **IN_S3,
        "AWS_ENDPOINT_URL": recorded.address,
        "max_retries": "2",
        "backoff_config.init_backoff": "1ms",
        "backoff_config.max_backoff": "2ms",
    }
    recorded.status = 503
    try:
        with pytest.raises(OSError, match="503"):
            DeltaStorageHandler(S3, options).get_file_info(["f"])
        delta_rs = len(recorded.requests)
        recorded.requests.clear()
        with pytest.raises(OSError, match="503 Service Unavailable"):
            log_storage(Location.parse(S3), options).names()
        assert (len(recorded.requests), delta_rs) == (3, 3)
    finally:
        recorded.status = 0
        recorded.requests.clear()


def test_what_the_client_is_told() -> None:
    given = {
        "AWS_TIMEOUT": "20s",
        "Connect_Timeout": "3s",
        "proxy_url": "http://proxy:1",
        "proxy_excludes": "local",
        "max_retries": "4",
        "retry_timeout": "1m 30s",
        "backoff_config.init_backoff": "10ms",
        "backoff.base": "3",
        "nonsense": "x",
        "timeout": "not the first",
    }
    store: Any = StoreOptions.read(Location.parse(S3), given).open()
    assert store.client_options == {
        "timeout": "20s",
        "connect_timeout": "3s",
        "proxy_url": "http://proxy:1",
        "proxy_excludes": "local",
    }
    assert store.retry_config == {
        "max_retries": 4,
        "retry_timeout": timedelta(seconds=90),
        "backoff": {
            "init_backoff": timedelta(milliseconds=10),
            "max_backoff": timedelta(seconds=15),
            "base": 3.0,
        },
    }


def test_a_certificate_of_the_store_s_own_authority(tmp_path: Path) -> None:
    path = tmp_path / "authority.pem"
    with pytest.raises(OffsetStoreError, match=rf"cannot reach .*No such file or directory: '{path}'"):
        log_storage(Location.parse(S3), {"certificate_path": str(path)})
    path.write_bytes(b"")
    with pytest.raises(OffsetStoreError, match="certificate"):
        log_storage(Location.parse(S3), {"certificate_path": str(path)})


@each_case(
    ("text", "seconds"),
    [("30s", 30), ("1m 30s", 90), ("2h37min", 9420), ("250ms", 0.25), (" 1 day ", 86400), ("0s", 0)],
)
def test_spans_of_time(text: str, seconds: float) -> None:
    assert duration(text) == timedelta(seconds=seconds)


@each_case("text", ["30", "s", "1.5s", "1x", "1s x", "-1s"])
def test_what_is_no_span_of_time(text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text)):
        duration(text)
    with pytest.raises(ValueError, match=r"^$"):
        duration("")

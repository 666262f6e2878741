"""Errors for a wrong address or wrong credentials of a store: one line with place, reason and what to do, and soon."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.store.fault_proxy import FaultProxy
from lab.store.faults import Rule
from lab.store.s3 import SECRET, S3Store, open_s3
from sparkonce.connectors.delta_sink.options import SinkOptions
from sparkonce.connectors.delta_sink.target import store_errors
from sparkonce.exactly_once.errors import FencedError
from sparkonce.offset_store.errors import CommitConflictError, OffsetStoreError, StoreMissingError
from sparkonce.offset_store.locations import Location
from sparkonce.offset_store.log import first_contact
from sparkonce.offset_store.log.first_contact import check_store_answers
from sparkonce.offset_store.store_hints import store_hint
from sparkonce.offset_store.tables import load_table
from sparkonce.options import OptionError
from tests.unit.sink.stored_query import StoredQuery

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def store() -> Iterator[S3Store]:
    with open_s3() as running:
        yield running


@pytest.fixture(scope="module")
def proxy(store: S3Store, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultProxy]:
    with FaultProxy(store.address, tmp_path_factory.mktemp("proxy")) as running:
        yield running


def told_of(query: StoredQuery) -> str:
    """Start a batch, and return the error, which is one line without the secret."""
    query.log(0, 10)
    with pytest.raises(Exception, match="s3://") as error:
        query.tasks(rows=[{"v": 1}])
    text = str(error.value)
    assert "\n" not in text
    assert "\x1b" not in text
    assert SECRET not in text
    return text


def test_a_wrong_endpoint(tmp_path: Path, store: S3Store) -> None:
    query = StoredQuery(tmp_path, S3Store("http://127.0.0.1:1"))
    assert told_of(query).endswith(
        "No store answers there: check storage.AWS_ENDPOINT_URL, and the network from this machine"
    )


def test_a_password_in_an_endpoint_is_not_shown(tmp_path: Path) -> None:
    told = told_of(StoredQuery(tmp_path, S3Store("http://user:pass-word@127.0.0.1:1")))
    assert "http://***@127.0.0.1:1/" in told
    assert "pass-word" not in told


@pytest.mark.parametrize("address", ["http://127.0.0.1:http", "http://u:pass-word/@127.0.0.1:1", "http://h:99999"])
def test_an_endpoint_that_is_no_address(tmp_path: Path, address: str) -> None:
    told = told_of(StoredQuery(tmp_path, S3Store(address)))
    assert "storage.AWS_ENDPOINT_URL is not an address: its port is not a number up to 65535" in told
    assert "pass-word" not in told


def test_a_name_that_does_not_resolve(tmp_path: Path) -> None:
    query = StoredQuery(tmp_path, S3Store("http://no-such-store.invalid:9000"))
    assert "No store answers there: check storage.AWS_ENDPOINT_URL" in told_of(query)


def test_an_endpoint_that_takes_connections_and_never_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without `check_store_answers` delta-rs would wait for three minutes."""
    monkeypatch.setitem(first_contact.IMPATIENT, "timeout", "300ms")
    monkeypatch.setitem(first_contact.IMPATIENT, "retry_timeout", "600ms")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silence = S3Store(f"http://127.0.0.1:{silent.getsockname()[1]}")
        with pytest.raises(OffsetStoreError, match=r"The store did not answer in time: check storage.AWS_ENDPOINT_URL"):
            load_table(Location.parse("s3://bucket/t"), silence.storage_options)


def test_http_that_was_not_allowed(tmp_path: Path, store: S3Store) -> None:
    query = StoredQuery(tmp_path, store)
    query.options["storage.AWS_ALLOW_HTTP"] = "false"
    assert "set storage.AWS_ALLOW_HTTP=true, or use https://" in told_of(query)


def test_a_bucket_that_is_not_there(tmp_path: Path, store: S3Store) -> None:
    query = StoredQuery(tmp_path, store)
    query.options["path"] = "s3://nowhere/t"
    told = told_of(query)
    assert told.startswith("cannot list s3://nowhere/t/_delta_log: ")
    assert (
        "exist. There is no such bucket at this endpoint: create it, or correct s3://nowhere/t or storage.AWS_" in told
    )


@pytest.mark.parametrize("exists", [False, True])
def test_credentials_that_may_only_read(tmp_path: Path, store: S3Store, proxy: FaultProxy, exists: bool) -> None:
    if exists:
        StoredQuery(tmp_path, store, "other", appId="other").write(0, [])
    proxy.use(Rule("DENIED", "PUT|POST|DELETE", times=0))
    told = told_of(StoredQuery(tmp_path, S3Store(proxy.address), coveredTwice="true"))
    assert "AccessDenied" in told
    assert "These credentials may not do that: a query lists, reads, writes and deletes in the folders" in told
    assert proxy.fired()[0] > 0


def test_a_table_that_others_lock_in_dynamodb(tmp_path: Path, store: S3Store) -> None:
    query = StoredQuery(tmp_path, store)
    query.write(0, [{"v": 1}])
    query.options["storage.AWS_S3_LOCKING_PROVIDER"] = "dynamodb"
    query.log(1, 20)
    with pytest.raises(
        OffsetStoreError, match=r"^cannot commit to s3://.*: AWS_S3_LOCKING_PROVIDER=dynamodb says that"
    ):
        query.tasks(rows=[{"v": 2}])
    assert query.values() == [1]


def test_a_token_that_has_expired(tmp_path: Path, proxy: FaultProxy) -> None:
    proxy.use(Rule("EXPIRED", times=0))
    told = told_of(StoredQuery(tmp_path, S3Store(proxy.address)))
    assert "ExpiredToken" in told
    assert "The credentials have expired: set new ones (storage.AWS_ACCESS_KEY_ID and storage.AWS_SECRET_ACC" in told


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("checkpointLocation", "{}://other/c"),
        ("offsetStore", "delta:{}://other/o"),
        ("deadLetters", "table:{}://other/d"),
    ],
)
def test_places_in_stores_of_two_kinds(option: str, value: str) -> None:
    options = {"path": "s3://bucket/t", "appId": "a", "checkpointLocation": "s3a://bucket/c"}
    options[option] = value.format("gs")
    SinkOptions.read(options)
    with pytest.raises(
        OptionError, match=rf"path=s3://bucket/t and {option}=(?:table:)?gs://other/. are in stores of different"
    ):
        SinkOptions.read(options | {"storage.AWS_REGION": "us-east-1"})
    for scheme in ("s3a", "file"):
        SinkOptions.read(options | {option: value.format(scheme), "storage.AWS_REGION": "us-east-1"})


def test_a_store_that_answers_with_an_error_is_left_to_the_patient(
    proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_contact, "_answered", set())
    proxy.use(Rule("UNAVAILABLE", times=0))
    check_store_answers(Location.parse("s3://bucket/t"), S3Store(proxy.address).storage_options)
    assert proxy.fired() == [2]


def test_hints_of_other_stores() -> None:
    azure, google = Location.parse("abfss://box@account.dfs.core.windows.net/t"), Location.parse("gs://bucket/t")
    assert "storage.AZURE_STORAGE_ENDPOINT" in store_hint(azure, "dns error")
    assert "check the address, and" in store_hint(google, "dns error")
    assert "set storage.GOOGLE_SERVICE_ACCOUNT, or" in store_hint(google, "GET http://metadata.google.internal/")
    amazon = store_hint(Location.parse("s3://bucket/t"), "an error occurred while loading credentials: no role")
    assert amazon.startswith(". No credentials for s3://bucket/t were found: set storage.AWS_ACCESS_KEY_ID and ")
    assert store_hint(Location.parse("/local"), "403 Forbidden") == ""
    assert store_hint(azure, "a conflict") == ""
    assert store_hint(azure, "503 Service Unavailable").startswith(". The store is overloaded or down: ")
    assert store_hint(azure, "version 500 of abfss://box/403/401 has 503 files") == ""


@pytest.mark.parametrize("kind", [CommitConflictError, FencedError, StoreMissingError])
def test_errors_of_ours_stay_what_they_are(kind: type[Exception]) -> None:
    with pytest.raises(kind) as error, store_errors(Location.parse("s3://b/t"), {}):
        raise kind("the answer was 503 Service Unavailable")
    assert type(error.value) is kind
    assert str(error.value) == "the answer was 503 Service Unavailable"

"""The log of a table in an object store: a real client against a store with S3's interface."""

from __future__ import annotations

import io
import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import obstore
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from lab.store.fault_proxy import FaultProxy
from lab.store.faults import Rule
from lab.store.s3 import SECRET, S3Store, open_s3
from sparkonce.offset_store.errors import OffsetStoreError
from sparkonce.offset_store.locations import Location
from sparkonce.offset_store.log import object_storage
from sparkonce.offset_store.log.cleanup import clean_up
from sparkonce.offset_store.log.intervals import DAY_MS
from sparkonce.offset_store.log.maintenance import Maintained, maintain
from sparkonce.offset_store.log.object_storage import ObjectStorage
from sparkonce.offset_store.log.reader import DeltaLog
from sparkonce.offset_store.log.storage import LogStorage
from sparkonce.offset_store.log.stores import check_commits, log_storage
from sparkonce.offset_store.store_hints import store_hint
from tests.cases import each_case
from tests.unit.delta_log.logs import HandLog
from tests.unit.offsets.recording_store import Recorded, recording_store

UNREPEATED = {"max_retries": "0", "timeout": "2s"}
COMMIT = f"{7:020d}.json"
TABLE = Location.parse("s3://bucket/t")


@pytest.fixture(scope="module", params=["moto", pytest.param("versitygw", marks=pytest.mark.soak)])
def store(request: pytest.FixtureRequest) -> Iterator[S3Store]:
    with open_s3(real=request.param == "versitygw") as running:
        yield running


@pytest.fixture(scope="module")
def proxy(store: S3Store, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultProxy]:
    with FaultProxy(store.address, tmp_path_factory.mktemp("proxy")) as running:
        yield running


@pytest.fixture
def recorded() -> Iterator[Recorded]:
    with recording_store() as running:
        yield running


def log_of(store: S3Store, root: Path, name: str = "t", **options: str) -> ObjectStorage:
    found = log_storage(Location.parse(f"s3a://bucket/{root.name}/{name}"), {**store.storage_options, **options})
    assert isinstance(found, ObjectStorage)
    return found


def parquet(table: pa.Table) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(table, buffer)
    return buffer.getvalue()


def test_files_are_put_read_replaced_and_removed(store: S3Store, tmp_path: Path) -> None:
    log: LogStorage = log_of(store, tmp_path)
    assert not log.is_local
    assert log.names() == []
    assert log.put_if_absent(COMMIT, b"one\n")
    first = log.tag(COMMIT)
    assert not log.put_if_absent(COMMIT, b"other\n")
    assert log.read(COMMIT) == b"one\n"
    log.put(COMMIT, b"")
    assert log.read(COMMIT) == b""
    assert first is not None
    assert log.tag(COMMIT) not in (None, first)
    log.delete(COMMIT)
    log.delete(COMMIT)
    assert log.tag(COMMIT) is None
    for missing in (log.read, log.open):
        with pytest.raises(FileNotFoundError, match=COMMIT):
            missing(COMMIT)
    assert log.names() == []


@pytest.mark.parametrize("store", ["moto"], indirect=True)  # versitygw closes the connection before it has read it all
def test_a_commit_that_is_larger_than_a_part_of_an_upload(store: S3Store, tmp_path: Path) -> None:
    log, data = log_of(store, tmp_path), bytes(6 << 20)
    assert log.put_if_absent(COMMIT, data)
    assert not log.put_if_absent(COMMIT, data)
    assert len(log.read(COMMIT)) == len(data)


def test_parts_of_a_checkpoint_are_read(store: S3Store, tmp_path: Path) -> None:
    log = log_of(store, tmp_path)
    table = pa.table({"a": list(range(10_000)), "b": ["x"] * 10_000})
    log.put("1.checkpoint.parquet", data := parquet(table))
    with log.open("1.checkpoint.parquet") as file:
        assert pq.ParquetFile(file).read(["a"]).equals(table.select(["a"]))
    with log.open("1.checkpoint.parquet") as file:
        assert file.seek(-4, os.SEEK_END) == len(data) - 4
        assert file.read() == b"PAR1"
        assert file.read(1) == b""
        file.seek(1)
        buffer = bytearray(3)
        assert file.readinto(buffer) == 3  # type: ignore[attr-defined]
        assert (bytes(buffer), file.tell()) == (b"AR1", 4)


def test_of_two_writers_one_wins(store: S3Store, tmp_path: Path) -> None:
    log = log_of(store, tmp_path)
    with ThreadPoolExecutor(2) as pool:
        for number in range(10):
            won = list(pool.map(lambda data, name=f"{number}.json": log.put_if_absent(name, data), (b"0", b"1")))
            assert sorted(won) == [False, True]
            assert log.read(f"{number}.json") == b"%d" % won.index(True)


def test_the_folder_is_the_one_that_delta_rs_uses(store: S3Store, tmp_path: Path) -> None:
    location = Location.parse(f"s3a://bucket/{tmp_path.name}/my täble, 100%")
    DeltaTable.create(location.text, pa.schema([("v", pa.int64())]), storage_options=dict(store.storage_options))
    log = log_storage(location, store.storage_options)
    assert log.names() == [f"{0:020d}.json"]
    assert b'"commitInfo"' in log.read(f"{0:020d}.json")


def fill(log: ObjectStorage, commits: int, sidecars: int) -> list[str]:
    """Put commits, sidecars and other files; return the names that a listing must have."""
    names = [f"{number:020d}.json" for number in range(commits)]
    with ThreadPoolExecutor(16) as pool:
        below = (f"_sidecars/{number:036d}.parquet" for number in range(sidecars))
        list(pool.map(lambda name: log.put(name, b""), (*names, *below)))
    for name in ("_last_checkpoint", "_commits/1.json", "_staged_commits/2.json", "_z"):
        log.put(name, b"")
    return [*names, "_last_checkpoint", "_z"]


@pytest.mark.parametrize("store", ["moto"], indirect=True)
@pytest.mark.parametrize(
    ("commits", "sidecars", "page"),
    [(25, 35, 10), pytest.param(2500, 1500, object_storage.PAGE, marks=pytest.mark.lab)],
)
def test_old_commits_and_sidecars_are_not_listed(
    store: S3Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commits: int, sidecars: int, page: int
) -> None:
    log = log_of(store, tmp_path)
    expected = fill(log, commits, sidecars)
    monkeypatch.setattr(object_storage, "PAGE", page)
    listed: list[int] = []
    original = obstore.list

    def counted(*args: Any, **options: Any) -> Iterator[Any]:
        for found in original(*args, **options):
            listed.append(len(found))
            yield found

    monkeypatch.setattr(obstore, "list", counted)
    assert log.names() == expected
    listed.clear()
    assert log.names(expected[commits - 4]) == expected[commits - 3 :]
    assert listed == [page, 2]  # three commits, a name, one of another folder, sidecars; then what is behind them
    assert log.names("_last_checkpoint") == ["_z"]
    assert log.names("_z") == []
    assert [name for name, _ in log.modified("_sidecars/")] == [f"{number:036d}.parquet" for number in range(sidecars)]
    found = dict(log.modified())
    assert sorted(found) == expected
    assert abs(found["_z"] - time.time() * 1000) < 600_000


def test_a_lost_answer_leaves_it_open(store: S3Store, proxy: FaultProxy, tmp_path: Path) -> None:
    log = log_of(S3Store(proxy.address), tmp_path, **UNREPEATED)
    proxy.use(Rule("LOST_ANSWER", "PUT", conditional=True))
    with pytest.raises(OSError, match=r"Error performing PUT .*connection closed") as error:
        log.put_if_absent(COMMIT, b"mine")
    assert not isinstance(error.value, FileExistsError | FileNotFoundError)
    assert proxy.fired() == [1]
    assert log.read(COMMIT) == b"mine"


def test_a_request_without_an_answer_leaves_it_open(proxy: FaultProxy, tmp_path: Path) -> None:
    log = log_of(S3Store(proxy.address), tmp_path, **UNREPEATED | {"timeout": "300ms"})
    proxy.use(Rule("LATE", "PUT", conditional=True))
    with pytest.raises(OSError, match="operation timed out"):
        log.put_if_absent(COMMIT, b"mine")
    assert log.tag(COMMIT) is None
    assert proxy.deliver_late() == [200]
    assert log.read(COMMIT) == b"mine"


def test_a_repetition_finds_our_own_file(proxy: FaultProxy, tmp_path: Path) -> None:
    log = log_of(S3Store(proxy.address), tmp_path)
    proxy.use(Rule("LOST_ANSWER", "PUT", conditional=True))
    assert not log.put_if_absent(COMMIT, b"mine")
    assert log.read(COMMIT) == b"mine"


def test_a_conflict_with_another_request_says_nothing_of_a_file(proxy: FaultProxy, tmp_path: Path) -> None:
    log = log_of(S3Store(proxy.address), tmp_path, **UNREPEATED)
    proxy.use(Rule("CONFLICT", "PUT", conditional=True))
    with pytest.raises(OSError, match="ConditionalRequestConflict") as error:
        log.put_if_absent(COMMIT, b"mine")
    assert not isinstance(error.value, FileExistsError)
    assert log.put_if_absent(COMMIT, b"mine")


@each_case(
    ("fault", "kind", "hint"),
    [
        ("DENIED", PermissionError, "These credentials may not do that"),
        ("EXPIRED", PermissionError, "The credentials have expired"),
        ("UNAVAILABLE", OSError, "The store is overloaded or down"),
        ("LOST_ANSWER", OSError, "The connection to the store broke"),
    ],
)
def test_errors_of_each_method(proxy: FaultProxy, tmp_path: Path, fault: str, kind: type[OSError], hint: str) -> None:
    log = log_of(S3Store(proxy.address), tmp_path, **UNREPEATED)
    calls: tuple[Callable[[], object], ...] = (
        log.names,
        lambda: log.read(COMMIT),
        lambda: log.open(COMMIT),
        lambda: log.tag(COMMIT),
        lambda: log.put_if_absent(COMMIT, b""),
        lambda: log.put(COMMIT, b""),
        lambda: log.delete(COMMIT),
    )
    for call in calls:
        proxy.use(Rule(fault, times=0))
        with pytest.raises(kind) as error:
            call()
        assert not isinstance(error.value, FileNotFoundError | FileExistsError)
        asks_head = call in calls[2:4]  # whose answers have no body, which would say what is forbidden
        assert hint in store_hint(TABLE, str(error.value)) or (asks_head and fault == "EXPIRED")
        assert "\n" not in str(error.value).split("<?xml")[0]
        assert SECRET not in str(error.value)
        assert error.value.__suppress_context__


@each_case(
    ("options", "hint"),
    [
        ({"AWS_ENDPOINT_URL": "http://127.0.0.1:1"}, "No store answers there: check storage.AWS_ENDPOINT_URL"),
        ({"AWS_ENDPOINT_URL": "http://no-such-store.invalid"}, "No store answers there"),
        ({"AWS_ALLOW_HTTP": "false"}, "For an endpoint with http:// set storage.AWS_ALLOW_HTTP=true"),
    ],
)
def test_a_wrong_endpoint(store: S3Store, tmp_path: Path, options: dict[str, str], hint: str) -> None:
    log = log_of(store, tmp_path, **UNREPEATED, **options)
    with pytest.raises(OSError, match="Error performing HEAD") as error:
        log.tag(COMMIT)
    assert hint in store_hint(TABLE, str(error.value))


@pytest.mark.soak
@pytest.mark.parametrize("store", ["versitygw"], indirect=True)
def test_a_wrong_secret(store: S3Store, tmp_path: Path) -> None:
    log = log_of(store, tmp_path, **UNREPEATED, AWS_SECRET_ACCESS_KEY="not-the-secret")
    for call in (log.names, lambda: log.read(COMMIT), lambda: log.put_if_absent(COMMIT, b"")):
        with pytest.raises(PermissionError) as error:
            call()
        assert "The store does not accept these credentials" in store_hint(TABLE, str(error.value))
        assert "not-the-secret" not in str(error.value)


def test_a_port_that_is_no_number_is_an_error_of_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """obstore panics."""
    with pytest.raises(
        OffsetStoreError, match=r"storage\.AWS_ENDPOINT_URL is not an address: its port is not a number"
    ):
        log_of(S3Store("http://127.0.0.1:http"), tmp_path)
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:http")
    with pytest.raises(OSError, match=r"^obstore failed: .*InvalidPort"):
        log_of(S3Store("http://127.0.0.1:1"), tmp_path).read(COMMIT)


def test_a_value_that_is_none(store: S3Store) -> None:
    for option, value in (("retry_timeout", "soon"), ("max_retries", "x"), ("backoff_config.base", "y")):
        with pytest.raises(OffsetStoreError, match=rf"^cannot reach s3://bucket/t: storage\.\w+={value} is no "):
            log_storage(TABLE, {option: value})
    with pytest.raises(OffsetStoreError, match=r'cannot reach s3://bucket/t: .*failed to parse "soon" as Duration'):
        log_storage(TABLE, {"timeout": "soon"})


@pytest.mark.parametrize("address", ["hdfs://name/t", "viewfs://x/t", "dbfs:/x", "http://x/y"])
def test_where_there_can_be_no_table(address: str) -> None:
    with pytest.raises(OffsetStoreError, match=r"^cannot reach .*: no table can be there: tables are on local"):
        log_storage(Location.parse(address), {})


@each_case(
    ("options", "told"),
    [
        ({"aws_conditional_put": "disabled"}, "AWS_CONDITIONAL_PUT=disabled leaves no way to write a commit only if"),
        ({"CONDITIONAL_PUT": "dynamo:locks"}, "AWS_CONDITIONAL_PUT=dynamo:locks leaves no way"),
        ({"aws_s3_locking_provider": "dynamodb"}, "AWS_S3_LOCKING_PROVIDER=dynamodb says that the writers"),
        ({"DELTA_DYNAMO_TABLE_NAME": "locks"}, "DELTA_DYNAMO_TABLE_NAME=locks says that the writers of this table"),
    ],
)
def test_options_without_conditional_writes(recorded: Recorded, options: dict[str, str], told: str) -> None:
    given = {**S3Store(recorded.address).storage_options, **options}
    with pytest.raises(OffsetStoreError, match=f"^cannot commit to s3://bucket/t: {told}"):
        check_commits(TABLE, given)
    log = log_storage(TABLE, given)
    assert log.names() == []
    with pytest.raises(OSError, match=told):
        log.put_if_absent(COMMIT, b"")
    assert recorded.take("PUT") == []


def test_the_same_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("AWS_CONDITIONAL_PUT", "disabled"), ("AWS_S3_LOCKING_PROVIDER", "dynamodb")):
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            with pytest.raises(OffsetStoreError, match=f"{name}={value}"):
                check_commits(TABLE, {})
    check_commits(TABLE, {})


def test_a_user_who_says_that_there_is_one_writer(store: S3Store, tmp_path: Path) -> None:
    both = {"AWS_CONDITIONAL_PUT": "disabled", "AWS_S3_ALLOW_UNSAFE_RENAME": "true"}
    log = log_of(store, tmp_path, **both)
    assert log.put_if_absent(COMMIT, b"1")
    assert not log.put_if_absent(COMMIT, b"2")
    assert log.read(COMMIT) == b"1"
    check_commits(Location.parse(f"s3://bucket/{tmp_path.name}"), {**store.storage_options, **both})


def test_one_writer_in_a_store_with_conditional_writes_uses_them(recorded: Recorded) -> None:
    """As delta-rs (1.6) does."""
    given = {**S3Store(recorded.address).storage_options, "AWS_S3_ALLOW_UNSAFE_RENAME": "true"}
    assert log_storage(TABLE, given).put_if_absent(COMMIT, b"")
    ((_, headers),) = recorded.take("PUT")
    assert headers["if-none-match"] == "*"


def test_a_store_that_refuses_the_condition(recorded: Recorded) -> None:
    recorded.status = 501
    log = log_storage(TABLE, {**S3Store(recorded.address).storage_options, **UNREPEATED})
    with pytest.raises(OSError, match=r"the store of s3://bucket/t has no conditional writes .*AWS_CONDITIONAL_PUT"):
        log.put_if_absent(COMMIT, b"")


def forked(work: Callable[[], str]) -> str:
    """Return what ``work`` returns in a process forked from this one."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        signal.alarm(20)
        try:
            os.write(writing, work().encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as answer:
        told = answer.read().decode()
    os.waitpid(child, 0)
    return told


def test_a_forked_process_is_refused_and_does_not_hang(store: S3Store, tmp_path: Path) -> None:
    log = log_of(store, tmp_path)
    log.put(COMMIT, b"")

    def work() -> str:
        try:
            return str(log.read(COMMIT))
        except OSError as error:
            return str(error)

    assert f"was forked from process {os.getpid()}, which had used an object store by then" in forked(work)
    assert log.read(COMMIT) == b""


def test_one_client_for_a_location_and_its_options(store: S3Store, tmp_path: Path) -> None:
    log = log_of(store, tmp_path)
    assert log_of(store, tmp_path).store is log.store
    assert log_of(store, tmp_path, timeout="29s").store is not log.store
    assert log_of(store, tmp_path, "other").store is not log.store


def test_a_log_in_a_store_gets_checkpoints_and_is_cleaned_up(store: S3Store, tmp_path: Path) -> None:
    hand = HandLog(tmp_path / "t")
    hand.create({"delta.checkpointInterval": "3"})
    hand.commits(7)
    location = Location.parse(f"s3://bucket/{tmp_path.name}/t")
    log = DeltaLog.open(location, store.storage_options)
    storage = log.storage
    now_ms, last = 40 * DAY_MS + int(time.time() * 1000), Maintained(None)
    for version in range(8):
        storage.put(f"{version:020d}.json", hand.log.storage.read(f"{version:020d}.json"))
        if version:
            last = maintain(log, hand.state(version), last=last, now_ms=now_ms)
            assert last.problem is None
    assert (last.checkpoint_version, last.cleaned_day) == (6, now_ms // DAY_MS)
    storage.put("_sidecars/unused.parquet", b"")
    assert clean_up(log, hand.state(), now_ms=now_ms).deleted == 5
    assert [name for name, _ in storage.modified()] == storage.names()
    assert storage.names()[:3] == [f"{6:020d}.checkpoint.parquet", f"{6:020d}.json", f"{7:020d}.json"]
    assert list(storage.modified("_sidecars")) == []
    table = DeltaTable(f"s3://bucket/{tmp_path.name}/t", storage_options=dict(store.storage_options))
    assert len(table.file_uris()) == 7

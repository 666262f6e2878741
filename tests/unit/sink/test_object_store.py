"""Tables on an object store: a real client against a store with S3's interface and its conditional writes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import types as t

from lab.store.s3 import SECRET, S3Store, open_s3
from sparkonce.connectors.delta_sink.schema import SchemaError
from sparkonce.connectors.delta_sink.separate_store import copy_offsets
from sparkonce.connectors.delta_sink.table import TableError
from sparkonce.connectors.delta_sink.target import store_errors
from sparkonce.connectors.kafka_sink.encoded_batch import EncodedBatch
from sparkonce.connectors.kafka_sink.spool import Spool, SpooledRows, SpoolError, SpoolFile
from sparkonce.connectors.kafka_sink.topics import Topics
from sparkonce.connectors.kafka_source.checkpoint import initial_offset_if_any
from sparkonce.exactly_once.batch import Batch
from sparkonce.exactly_once.checkpoint import Checkpoint
from sparkonce.exactly_once.errors import CheckpointError, FencedError, FilesGoneError, UnknownOutcomeError
from sparkonce.offset_store import open_store
from sparkonce.offset_store.errors import CommitConflictError, OffsetStoreError
from sparkonce.offset_store.locations import Location
from sparkonce.offset_store.log.proposal import Proposal
from sparkonce.offset_store.log.reader import DeltaLog
from sparkonce.offset_store.log.table_log import TableLog
from sparkonce.offset_store.record import BatchRecord
from sparkonce.offset_store.secrets import hidden_secrets, without_secrets
from sparkonce.offset_store.tables import join, load_table, table_filesystem
from sparkonce.offset_store.txn_ids import query_txn_id
from tests.cases import each_case
from tests.unit.sink.query_by_hand import Query
from tests.unit.sink.stored_query import CheckpointInStore, StoredQuery, upload


@pytest.fixture(scope="module")
def store() -> Iterator[S3Store]:
    with open_s3() as running:
        yield running


def test_batches_replays_and_a_lost_checkpoint(tmp_path: Path, store: S3Store) -> None:
    query = StoredQuery(tmp_path, store)
    query.write(0, [{"v": 1}])
    query.write(1, [{"v": 2}])
    query.write(1, [{"v": 2}])
    fresh = StoredQuery(tmp_path, store, "fresh")
    fresh.write(0, [{"v": 1}])
    assert query.values() == [1, 2]
    assert query.handle().version() == 2
    assert query.handle().transaction_version(query_txn_id("app", "q")) == 1


def test_a_checkpoint_in_the_same_store(tmp_path: Path, store: S3Store) -> None:
    query = CheckpointInStore(tmp_path, store)
    for batch_id in (0, 1, 1):
        query.write(batch_id, [{"v": batch_id}])
    assert query.values() == [0, 1]
    (query.checkpoint / "state/0").mkdir(parents=True)
    (query.checkpoint / "state/0/file").touch()
    query.log(2, 30)
    assert Checkpoint.open(query.options["checkpointLocation"], store.storage_options).is_stateful()


def test_the_initial_offset_of_spark_s_connector_in_a_store(tmp_path: Path, store: S3Store) -> None:
    (tmp_path / "sources/0").mkdir(parents=True)
    (tmp_path / "sources/0/0").write_bytes(b'\0v1\n{"t":{"0":5}}')
    location = f"s3a://bucket/{tmp_path.name}"
    assert initial_offset_if_any(location, "kafka", {"t"}, store.storage_options) is None
    upload(tmp_path, location, store)
    found = initial_offset_if_any(location, "kafka", {"t"}, store.storage_options)
    assert found is not None
    assert {(tp.topic, position.next) for tp, position in found.positions.items()} == {("t", 5)}


def test_rows_are_spooled_beside_a_checkpoint_in_a_store(tmp_path: Path, store: S3Store) -> None:
    spool = Spool(f"s3a://bucket/{tmp_path.name}", store.storage_options)
    sent = [EncodedBatch("t", number, 1, bytearray(random.Random(number).randbytes(3 << 20))) for number in range(2)]
    file = SpoolFile(spool, cast(Topics, None), "rows")
    file.send(sent)
    file.flush()
    assert list(spool.read(SpooledRows("rows", 2))) == sent
    spool.clear()
    gone = rf"^s3://bucket/{tmp_path.name}/sparkonce-spool/rows, which a task .*: another driver of this appId .* it$"
    with pytest.raises(SpoolError, match=gone):
        list(spool.read(SpooledRows("rows", 2)))


def test_a_checkpoint_s_store_that_does_not_answer(tmp_path: Path, store: S3Store) -> None:
    """The message names the settings that would help, and no secret."""
    nowhere = {"AWS_ENDPOINT_URL": "http://127.0.0.1:1", "max_retries": "0", "AWS_SECRET_ACCESS_KEY": SECRET}
    options = {**store.storage_options, **nowhere}
    there = Checkpoint.open("s3a://bucket/checkpoint", store.storage_options)
    gone = replace(there, filesystem=there.location.filesystem(options)[0], storage_options=options)
    for ask in (
        lambda: Checkpoint.open("s3a://bucket/checkpoint", options),
        gone.latest_batch_id,
        gone.query_id,
        gone.is_stateful,
    ):
        with pytest.raises(CheckpointError) as error:
            ask()
        assert str(error.value).startswith("checkpointLocation=s3://bucket/checkpoint: ")
        assert "No store answers there: check storage.AWS_ENDPOINT_URL" in str(error.value)
        assert SECRET not in str(error.value)


def test_a_table_s_store_that_does_not_answer(store: S3Store) -> None:
    nowhere = {"AWS_ENDPOINT_URL": "http://127.0.0.1:1", "max_retries": "0", "AWS_SECRET_ACCESS_KEY": SECRET}
    with pytest.raises(OffsetStoreError, match=r"storage\.AWS_ENDPOINT_URL") as error:
        load_table(Location.parse("s3a://bucket/table"), {**store.storage_options, **nowhere})
    assert SECRET not in str(error.value)


def test_of_two_drivers_one_stops(tmp_path: Path, store: S3Store) -> None:
    """The store's conditional write decides: `If-None-Match` on the log file of the version."""
    query, rival = StoredQuery(tmp_path, store), StoredQuery(tmp_path, store, "rival")
    for each in (query, rival):
        each.log(0, 10)
    mine, theirs = query.tasks(rows=[{"v": 1}]), rival.tasks(rows=[{"v": 2}])
    rival.commit(0, theirs)
    with pytest.raises(FencedError, match="holds batch 0 of query rival"):
        query.commit(0, mine)
    assert query.values() == [2]


def test_two_drivers_within_one_commit(tmp_path: Path, store: S3Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both have checked version 0 when both write version 1."""
    query, rival = StoredQuery(tmp_path, store), StoredQuery(tmp_path, store, "rival")
    for each in (query, rival):
        each.log(0, 10)
    mine, theirs = query.tasks(rows=[{"v": 1}]), rival.tasks(rows=[{"v": 2}])
    original = TableLog.commit

    def overtaken(self: TableLog, *args: Any) -> int:
        monkeypatch.setattr(TableLog, "commit", original)
        rival.commit(0, theirs)
        return original(self, *args)

    monkeypatch.setattr(TableLog, "commit", overtaken)
    with pytest.raises(FencedError, match="holds batch 0 of query rival"):
        query.commit(0, mine)
    assert query.values() == [2]


def test_partitions_growth_and_replacement(tmp_path: Path, store: S3Store) -> None:
    query = StoredQuery(tmp_path, store, partitionBy="v")
    query.schema = t.StructType([t.StructField("v", t.LongType()), t.StructField("w", t.LongType())])
    query.write(0, [{"v": 1, "w": 2}, {"v": 2, "w": 3}])
    query.options["mergeSchema"] = "true"
    query.schema = t.StructType([*query.schema.fields, t.StructField("x", t.StringType())])
    query.write(1, [{"v": 3, "w": 4, "x": "é"}])
    found = query.handle().to_pyarrow_table().sort_by("v").to_pylist()
    assert found == [{"v": 1, "w": 2, "x": None}, {"v": 2, "w": 3, "x": None}, {"v": 3, "w": 4, "x": "é"}]
    query.replace = True
    query.write(2, [{"v": 9, "w": 9, "x": None}])
    assert query.values() == [9]


def test_a_commit_whose_answer_is_lost(tmp_path: Path, store: S3Store, monkeypatch: pytest.MonkeyPatch) -> None:
    query = StoredQuery(tmp_path, store)
    query.log(0, 10)
    messages = query.tasks(rows=[{"v": 1}])
    original = TableLog.commit

    def loses(self: TableLog, *args: Any) -> int:
        original(self, *args)
        raise OSError("no answer")

    with monkeypatch.context() as patch:
        patch.setattr(TableLog, "commit", loses)
        query.commit(0, messages)
    query.abort(0, messages)
    assert query.values() == [1]


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave no credentials in the environment."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("bare")
def test_missing_credentials_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    query = Query(tmp_path)
    query.options |= {"path": "s3://bucket/t", "storage.AWS_REGION": "us-east-1"}
    query.log(0, 10)

    def unreachable(*args: Any, **kwargs: Any) -> None:
        raise OSError("Error performing PUT http://169.254.169.254/latest/api/token in 1s, after 10 retries")

    for name in ("list", "get", "head"):
        monkeypatch.setattr(f"obstore.{name}", unreachable)
    reason = r"No credentials for s3://bucket/t were found: set storage.AWS_ACCESS_KEY_ID and storage.AWS_SECRET"
    with pytest.raises(OffsetStoreError, match=reason):
        query.writer().begin()


def test_a_bucket_that_is_not_there_is_told_without_the_key(tmp_path: Path, store: S3Store) -> None:
    query = StoredQuery(tmp_path, store)
    query.options["path"] = "s3://nowhere/t"
    query.log(0, 10)
    with pytest.raises(Exception, match="s3://nowhere/t") as error:
        query.writer().begin()
    told = str(error.value)
    assert "NoSuchBucket" in told or "not exist" in told
    assert SECRET not in told


def test_a_secret_in_an_error_is_hidden_in_all_its_causes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    signature = "sv=2024&sig=ab%2Bcd%3D"
    query = Query(tmp_path)
    query.options |= {
        "path": "abfss://box@account.dfs.core.windows.net/t",
        "storage.AZURE_STORAGE_SAS_TOKEN": signature,
    }
    query.log(0, 10)

    def quotes(*args: Any, **kwargs: Any) -> None:
        raise OSError(f"Error performing GET https://account.blob.core.windows.net/box/t?{signature}&comp=list")

    for name in ("list", "get", "put", "head"):
        monkeypatch.setattr(f"obstore.{name}", quotes)
    with pytest.raises(OffsetStoreError, match=r"windows.net/box/t\?\*\*\*&comp=list") as error:
        query.writer().begin()
    assert error.value.__cause__ is None
    assert error.value.__suppress_context__


@each_case(
    ("text", "options", "told"),
    [
        ("let new columns be added with mergeSchema=true", {"AWS_SSE_BUCKET_KEY_ENABLED": "true"}, None),
        ("version 300", {"AWS_TOKEN_SECONDS": "300"}, None),
        ("s3://test-bucket/latest", {"AWS_SECRET_ACCESS_KEY": "test"}, None),
        ("secret test, really", {"AWS_SECRET_ACCESS_KEY": "test"}, "secret ***, really"),
        ("what?", {"AZURE_STORAGE_SAS_TOKEN": "?"}, None),
        ("xabcdefghx", {"AWS_SECRET_ACCESS_KEY": "abcdefgh"}, "x***x"),
        ("key=abc", {"AWS_SECRET_ACCESS_KEY": "abc"}, "key=***"),
        ("a%2Fb a/b", {"AWS_SECRET_ACCESS_KEY": "a/b"}, "*** ***"),
        ("GET https://h/p?X-Amz-Signature=12ab&x=1", {}, "GET https://h/p?X-Amz-Signature=***&x=1"),
        (
            "GET http://u:p@ss@h:9/b?x=1: no answer",
            {"AWS_ENDPOINT_URL": "http://u:p@ss@h:9"},
            "GET http://***@h:9/b?x=1: no answer",
        ),
        ("http://h:9/a@b and abfss://box@account.net/t", {}, None),
        ("region eu true", {"AWS_REGION": "eu", "AWS_ALLOW_HTTP": "true", "AWS_SESSION_TOKEN": ""}, "region eu true"),
    ],
)
def test_what_is_hidden(text: str, options: dict[str, str], told: str | None) -> None:
    assert without_secrets(text, options) == (text if told is None else told)


SIGNATURE = "sv=2024&sig=ab%2Bcd%3D"
SIGNED = {"azure_storage_sas_token": SIGNATURE}


@pytest.fixture
def refusing(monkeypatch: pytest.MonkeyPatch) -> Location:
    """A store that quotes the request in each of its errors."""

    def quotes(*args: Any, **kwargs: Any) -> None:
        raise OSError(f"GET https://account.blob.core.windows.net/box/t?{SIGNATURE}&comp=list")

    for name in ("DeltaTable", "fs.DeltaStorageHandler"):
        monkeypatch.setattr(f"deltalake.{name}", quotes)
    for name in ("list", "get", "put", "head"):
        monkeypatch.setattr(f"obstore.{name}", quotes)
    return Location.parse("abfss://box@account.dfs.core.windows.net/t")


def without_signature(error: BaseException) -> bool:
    return "ab%2Bcd" not in str(error) and error.__cause__ is None and error.__suppress_context__


def test_a_secret_is_hidden_wherever_a_table_is_reached(refusing: Location) -> None:
    store = open_store(f"delta:{refusing}", "app", SIGNED, create_missing=True)
    for reach in (lambda: load_table(refusing, SIGNED), lambda: table_filesystem(refusing, SIGNED), store.snapshot):
        with pytest.raises(OffsetStoreError, match=r"GET .*\*\*\*&comp=list") as error:
            reach()
        assert without_signature(error.value)


def test_a_secret_is_hidden_in_a_failed_commit(tmp_path: Path, refusing: Location) -> None:
    DeltaTable.create(str(tmp_path), pa.schema([("v", pa.int64())]))
    state = TableLog(Location.parse(str(tmp_path))).state()
    with pytest.raises(OffsetStoreError, match=r"GET .*\*\*\*&comp=list") as error:
        TableLog(refusing, SIGNED).commit(Proposal({"app": 1}), state)
    assert without_signature(error.value)


def test_a_secret_is_hidden_where_offsets_are_copied(refusing: Location, caplog: pytest.LogCaptureFixture) -> None:
    store = open_store(f"delta:{refusing}", "app", SIGNED, create_missing=True)
    assert not copy_offsets(store, store, Batch(BatchRecord("app", "q", 0, "attempt", {}), False), SIGNED)
    assert "comp=list" in caplog.text
    assert "ab%2Bcd" not in caplog.text


def test_a_secret_is_hidden_in_the_log_of_a_table(refusing: Location) -> None:
    log = DeltaLog.open(refusing, SIGNED)
    with pytest.raises(OffsetStoreError, match=r"cannot list abfss:.*\*\*\*") as error:
        log.listing()
    assert without_signature(error.value)


@pytest.mark.parametrize("kind", [FencedError, SchemaError, TableError, CommitConflictError])
def test_an_error_of_ours_keeps_its_class(kind: type[Exception]) -> None:
    options = {"AWS_SECRET_ACCESS_KEY": "abcdefgh"}
    for hiding in (hidden_secrets(options), store_errors(Location.parse("s3://b/t"), options)):
        with pytest.raises(kind, match=r"^not \*\*\*$"), hiding:
            raise kind("not abcdefgh")


def test_other_errors_pass_as_they_are() -> None:
    wrong = UnknownOutcomeError("no answer")
    with pytest.raises(UnknownOutcomeError) as error, store_errors(Location.parse("s3://b/t"), {"AWS_KEY": "abc"}):
        raise wrong
    assert error.value is wrong


def test_a_file_that_is_gone_before_its_commit(tmp_path: Path, store: S3Store) -> None:
    query = StoredQuery(tmp_path, store)
    query.log(0, 10)
    messages = query.tasks(2)
    part = messages[0].parts[0]
    assert isinstance(part, tuple)
    filesystem, root = table_filesystem(Location.parse(query.uri), store.storage_options)
    filesystem.delete_file(join(root, part[0].path))
    with pytest.raises(FilesGoneError, match="1 of its 2 data files are gone"):
        query.commit(0, messages)
    query.write(0, [{"v": 1}])
    assert query.values() == [1]

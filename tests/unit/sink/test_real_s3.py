"""A real server with S3's interface: what exactly-once needs of a store, and the tests' own server beside it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from lab.s3_peers import versitygw
from lab.store.s3 import ACCESS_KEY, BUCKET, REGION, SECRET, S3Store, open_s3
from sparkonce.exactly_once.errors import FencedError
from sparkonce.jobs.shared.jars import PeerMissingError
from tests.unit.sink.stored_query import CheckpointInStore, StoredQuery

OBJECTS, WRITERS, RACES = 25, 8, 5


@pytest.fixture(scope="module", params=["moto", pytest.param("versitygw", marks=pytest.mark.soak)])
def store(request: pytest.FixtureRequest) -> Iterator[S3Store]:
    with open_s3(real=request.param == "versitygw") as running:
        yield running


def test_of_racing_conditional_writes_one_succeeds(store: S3Store) -> None:
    client: Any = boto3.client(
        "s3",
        endpoint_url=store.address,
        aws_access_key_id=ACCESS_KEY,
        aws_secret_access_key=SECRET,
        region_name=REGION,
        config=Config(max_pool_connections=WRITERS, retries={"total_max_attempts": 1}),
    )

    def write(key: str, writer: int) -> int:
        try:
            client.put_object(Bucket=BUCKET, Key=key, Body=f"{writer}".encode() * 1000, IfNoneMatch="*")
        except ClientError as error:
            return int(error.response["ResponseMetadata"]["HTTPStatusCode"])
        return 200

    with ThreadPoolExecutor(WRITERS) as pool:
        for number in range(OBJECTS):
            answers = Counter(pool.map(write, [f"race/{number}"] * WRITERS, range(WRITERS)))
            assert answers[200] == 1
            assert set(answers) <= {200, 409, 412}


def test_table_and_checkpoint(store: S3Store, tmp_path: Path) -> None:
    query = CheckpointInStore(tmp_path, store)
    for batch_id in (0, 1, 1):
        query.write(batch_id, [{"v": batch_id}])
    assert query.values() == [0, 1]


def test_of_two_drivers_within_one_commit_one_stops(store: S3Store, tmp_path: Path) -> None:
    """Both have compared with version 0 when both write version 1, at the same time."""
    for number in range(RACES):
        (root := tmp_path / f"race{number}").mkdir()
        rivals = [StoredQuery(root, store, name) for name in ("one", "other")]
        for each in rivals:
            each.log(0, 10)
        written = [each.tasks(rows=[{"v": value}]) for value, each in enumerate(rivals)]

        def commit(each: int, rivals: Any = rivals, written: Any = written) -> bool:
            try:
                rivals[each].commit(0, written[each])
            except FencedError:
                return False
            return True

        with ThreadPoolExecutor(2) as pool:
            landed = list(pool.map(commit, (0, 1)))
        assert sorted(landed) == [False, True]
        assert rivals[0].values() == [landed.index(True)]


def test_without_go_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("VERSITYGW", raising=False)
    with pytest.raises(PeerMissingError, match=r"no go found: install Go, or name a versitygw in the variable VERSI"):
        versitygw()
    monkeypatch.setenv("VERSITYGW", str(tmp_path / "none"))
    with pytest.raises(PeerMissingError, match=r"VERSITYGW=.*/none is not a program"):
        versitygw()


def test_what_go_cannot_build(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    go = tmp_path / "go"
    go.write_text("#!/bin/sh\necho downloading >&2\necho 'no such version' >&2\nexit 1\n")
    go.chmod(0o755)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.delenv("VERSITYGW", raising=False)
    with pytest.raises(PeerMissingError, match=r"Go could not build .*@v1\.8\.0: no such version$"):
        versitygw()

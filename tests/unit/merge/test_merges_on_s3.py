"""What is said of merges on S3, where delta-spark's commits are not conditional."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from lab.store.s3 import open_s3
from sparkonce.connectors.delta_spark.merge import MergeWriter


def session(**settings: str) -> Any:
    return SimpleNamespace(conf=SimpleNamespace(get=lambda name, default: settings.get(name, default)))


def test_a_second_driver_is_warned_of_once(tmp_path: Any, caplog: pytest.LogCaptureFixture) -> None:
    with open_s3() as store:
        options: dict[str, Any] = {"keys": ["id"], "storage_options": store.storage_options}
        writer = MergeWriter("s3a://bucket/t", "app", str(tmp_path), **options)
        other = MergeWriter("s3a://bucket/t", "app", str(tmp_path), **options)
    other._warn_of_second_driver(session(**{"spark.delta.logStore.s3a.impl": "of.a.Database"}))
    MergeWriter(str(tmp_path / "t"), "app", str(tmp_path), keys=["id"])._warn_of_second_driver(session())
    assert not caplog.records
    for _ in range(2):
        writer._warn_of_second_driver(session())
    (record,) = caplog.records
    assert record.getMessage().startswith("MergeWriter: s3://bucket/t is written by delta-spark, whose default Log")
    assert record.getMessage().endswith("or name another LogStore in spark.delta.logStore.s3a.impl")

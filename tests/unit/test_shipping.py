"""What is said in a process that lacks the package, or has another version, when Spark sends it one of our classes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pyspark import cloudpickle

from sparkonce import AppendWriter, ForeachBatch, MergeWriter, __version__
from sparkonce.connectors.delta_sink.batch_writer import DeltaBatchWriter
from sparkonce.connectors.formats.delta_once import DeltaOnceDataSource
from sparkonce.connectors.formats.kafka_once import KafkaOnceDataSource
from sparkonce.connectors.kafka_sink.batch_writer import KafkaBatchWriter
from sparkonce.connectors.kafka_source.source import KafkaOnceReader, KafkaOnceStreamReader
from sparkonce.connectors.session import spark_session
from sparkonce.connectors.sinks.stream_sink import StreamSink
from tests.cases import each_case

SENT = (
    AppendWriter,
    DeltaBatchWriter,
    DeltaOnceDataSource,
    ForeachBatch,
    KafkaBatchWriter,
    KafkaOnceDataSource,
    KafkaOnceReader,
    KafkaOnceStreamReader,
    MergeWriter,
    StreamSink,
)
REMEDY = f"install sparkonce=={__version__} there, or set PYSPARK_PYTHON to a Python that has it (docs/shipping.md)"


@each_case("kind", SENT)
def test_a_class_arrives_as_itself(kind: type) -> None:
    assert cloudpickle.loads(cloudpickle.dumps(kind)) is kind


@pytest.mark.parametrize(
    ("before", "said"),
    [
        ("sys.modules['sparkonce'] = None", "has no sparkonce (import of sparkonce halted"),
        ("import sparkonce; sparkonce.__version__ = '0.0.9'", f"has sparkonce 0.0.9, and the driver {__version__}: "),
        ("sys.modules['pyarrow'] = None", "cannot load sparkonce: import of pyarrow halted"),
    ],
)
def test_the_machine_what_it_lacks_and_what_to_do(before: str, said: str, tmp_path: Path) -> None:
    """With the last line only: what comes after the class in the pickle is not even read."""
    sent = tmp_path / "sent"
    sent.write_bytes(cloudpickle.dumps(KafkaOnceDataSource({"subscribe": "orders"})))
    load = "cloudpickle.loads(pathlib.Path('sent').read_bytes())"
    code = f"import sys, pathlib; from pyspark import cloudpickle; {before}; {load}"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    last = done.stderr.splitlines()[-1]
    assert last.startswith("ImportError: the Python process on ")
    assert f"({sys.executable}) {said}" in last
    assert REMEDY in last
    assert "During handling" not in done.stderr


def test_a_python_for_workers_that_is_not_on_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "./nowhere/bin/python")
    with pytest.raises(FileNotFoundError, match=r"PYSPARK_PYTHON=\./nowhere/bin/python is no program on this machine"):
        spark_session("none", **{"spark.master": "spark://127.0.0.1:1"})

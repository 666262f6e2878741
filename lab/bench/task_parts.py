"""The CPU time of a direct task by parts, without Spark: fetching, decoding, values, files.

One process reads one partition again and again, each time with one more step: it only fetches, then decodes
records, then JSON, then writes Parquet files. The figure of a part is what its step adds, in the process's
CPU time per million rows, which is less noisy on a busy machine than elapsed time. There is no target: it
shows what limits the other benchmarks.

The measuring process is ``python -m lab.bench.task_parts BROKER TOPIC OPTIONS ROUNDS``.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyarrow import fs

from lab.bench.load import create_topic, delete_topic, documents, fill, random_bytes
from lab.bench.pipelines import JSON_OPTIONS
from lab.bench.results import Comparison, Results, say
from lab.bench.sessions import SideError
from lab.bench.settings import VALUE_BYTES, Settings
from sparkonce.connectors.delta_sink.parquet import FileSettings, TableWriter
from sparkonce.connectors.delta_sink.schema import WriteSchema
from sparkonce.connectors.delta_sink.statistics import DEFAULT_INDEXED_COLUMNS
from sparkonce.connectors.kafka_source.decode import RecordDecoder
from sparkonce.connectors.kafka_source.fetch import RangeFetcher
from sparkonce.connectors.kafka_source.options import SourceOptions
from sparkonce.connectors.kafka_source.ranges import FetchRange
from sparkonce.connectors.kafka_source.reading import read_range
from sparkonce.connectors.runtime.memory import keep_freed_memory
from sparkonce.connectors.values.options import VALUE
from sparkonce.kafka.client.client import LATEST, shared_client

FILE_BYTES = 128 << 20
UNIT = "CPU s/M rows"
_LIMIT_S = 900


@dataclass(frozen=True, slots=True)
class Kind:
    """Records of one kind."""

    rows: Callable[[Settings], int]
    values: Callable[[], Sequence[bytes]]
    options: Mapping[str, str]


KINDS: Mapping[str, Kind] = {
    "100B": Kind(lambda settings: settings.direct_rows_of(VALUE_BYTES), lambda: random_bytes(VALUE_BYTES), {}),
    "1KiB": Kind(lambda settings: settings.direct_rows_of(1024), lambda: random_bytes(1024), {}),
    "json": Kind(lambda settings: settings.direct_json_rows, documents, JSON_OPTIONS),
}


def compare_parts(name: str, broker: str, settings: Settings, results: Results) -> None:
    """Measure the parts for each kind of record; lines are ``NAME-KIND-PART``."""
    for kind_name, kind in KINDS.items():
        rows, topic = max(1, kind.rows(settings) // 5), f"{name}-{kind_name}"
        create_topic(broker, topic, 1)
        fill(broker, topic, rows, kind.values(), 1)
        for part, figures in _in_a_process(broker, topic, kind.options, settings.direct_rounds, rows).items():
            say(f"{topic}-{part}: {min(figures):.3f} {UNIT}")
            results.comparisons.append(Comparison(f"{topic}-{part}", UNIT, tuple(figures), (), "", less_is_better=True))
        delete_topic(broker, topic)


def _in_a_process(
    broker: str, topic: str, options: Mapping[str, str], rounds: int, rows: int
) -> Mapping[str, list[float]]:
    command = [sys.executable, "-m", "lab.bench.task_parts"]
    arguments = [broker, topic, json.dumps(dict(options)), str(rounds)]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False, timeout=_LIMIT_S)
    if done.returncode:
        raise SideError(f"{topic}: the measuring process failed: {done.stderr[-1500:]}")
    found = json.loads(done.stdout.splitlines()[-1])
    if found["rows"] != rows:
        raise SideError(f"{topic}: {found['rows']} of {rows} rows were read")
    parts: Mapping[str, list[float]] = found["parts"]
    return parts


class Steps:
    """The steps over one partition."""

    def __init__(self, broker: str, topic: str, options: Mapping[str, str]) -> None:
        given = {"kafka.bootstrap.servers": broker, "subscribe": topic}
        self._raw = SourceOptions.read(
            {**given, **{name: options[name] for name in options if not name.startswith("value")}}
        )
        self._typed = SourceOptions.read({**given, **options})
        client = shared_client(self._raw.settings)
        topics = client.topics([topic])
        self.rows = client.offsets({(topic, 0): LATEST}, topics)[topic, 0]
        self._range = FetchRange(topic, topics[topic].topic_id, 0, 0, self.rows)
        self._client = client

    def fetch(self) -> None:
        """Only fetch, and find the batches."""
        wanted = self._range
        decoder = RecordDecoder(wanted.topic, wanted.partition, columns=self._raw.rows.decoded)
        for _ in RangeFetcher(self._client, decoder, wanted, self._raw.poll_timeout_ms).ahead():
            pass

    def decode(self) -> None:
        """Decode records, too."""
        self._read(self._raw)

    def values(self) -> None:
        """Decode their values, too."""
        self._read(self._typed)

    def files(self) -> None:
        """Write Parquet files, too: of the fields, if values are decoded."""
        with tempfile.TemporaryDirectory(prefix="bench-") as directory:
            writer: TableWriter | None = None
            for batch in read_range(self._typed, self._range):
                rows = _fields(batch)
                writer = writer or _writer(directory, rows.schema)
                writer.write(rows)
            assert writer is not None
            written = sum(file.rows for file in writer.close())
        assert written == self.rows

    def _read(self, options: SourceOptions) -> None:
        read = sum(batch.num_rows for batch in read_range(options, self._range))
        assert read == self.rows

    def named(self) -> Iterator[tuple[str, Callable[[], None]]]:
        """Yield the steps in order, each by the name of its part."""
        yield "fetch", self.fetch
        yield "decode", self.decode
        if self._typed.rows.decoding is not None:
            yield "values", self.values
        yield "files", self.files


def _fields(batch: pa.RecordBatch) -> pa.RecordBatch:
    if batch.schema.names == [VALUE] and pa.types.is_struct(batch.column(0).type):
        return pa.RecordBatch.from_struct_array(batch.column(0))
    return batch


def _writer(directory: str, schema: pa.Schema) -> TableWriter:
    write_schema = WriteSchema(schema, tuple(range(len(schema))), (), ())
    settings = FileSettings("bench", write_schema, "snappy", FILE_BYTES, DEFAULT_INDEXED_COLUMNS)
    return TableWriter(fs.LocalFileSystem(), directory, settings)


def parts(steps: Steps, rounds: int) -> dict[str, list[float]]:
    """Return what each step adds, in CPU seconds per million rows, a figure per round; the warm-up is dropped."""
    found: dict[str, list[float]] = {}
    for number in range(rounds + 1):
        before = 0.0
        for name, step in steps.named():
            began = time.process_time()
            step()
            spent = (time.process_time() - began) / steps.rows * 1e6
            if number:
                found.setdefault(name, []).append(spent - before)
            before = spent
    return found


def main(arguments: Sequence[str]) -> None:
    """Measure, and print the figures as JSON."""
    broker, topic, options, rounds = arguments
    keep_freed_memory()
    steps = Steps(broker, topic, json.loads(options))
    print(json.dumps({"rows": steps.rows, "parts": parts(steps, int(rounds))}))


if __name__ == "__main__":
    main(sys.argv[1:])

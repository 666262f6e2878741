"""A broker's time until it is ready, its idle memory, and its recovery time after a SIGKILL.

Ours is started as users start it, `python -m sparkonce.broker_lite`, from compiled files, as pip leaves them: the first
start, which does not count, may write them. It is ready when it has answered ApiVersions.
Apache Kafka is stopped and started again on its formatted directory; its port is polled every 50 ms, which its figures
include. These figures have limits, with Kafka's beside them; only the recovery is a ratio.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from lab.bench.load import LoadError, create_topic, delete_topic
from lab.bench.results import Bound, Comparison, Missing, Results, say
from lab.bench.settings import LIMITS, PARTITIONS, TARGETS, Settings
from lab.bench.sides import KAFKA, OURS, round_name, rss_mb
from lab.bench.tools import produce
from lab.bench.wire import api_versions, end_offsets
from lab.peers import RealKafka
from sparkonce.broker_lite.embedded import EmbeddedBroker
from sparkonce.jobs.shared.jars import PeerMissingError

MANY_PARTITIONS = 1000
_IDLE_S = 2.0
_STOP_S = 60.0
_SERVED_S = 120.0
_ASK_AGAIN_S = 0.01
_VALUE_BYTES = 1024
_BATCH_BYTES = 65536
_CONSTRUCT = """\
import time
from sparkonce.broker_lite.embedded import EmbeddedBroker
import sparkonce.broker_lite.embedded
began = time.perf_counter()
broker = EmbeddedBroker()
print(time.perf_counter() - began)
broker.close()
"""


@dataclass(frozen=True, slots=True)
class Start:
    """One start: seconds from exec to the first answer, and the resident memory after two idle seconds."""

    ready_s: float
    rss_mb: float

    def __str__(self) -> str:
        return f"{self.ready_s * 1000:,.0f} ms, {self.rss_mb:.0f} MB"


def run_ready(name: str, settings: Settings, results: Results) -> None:
    """Measure starts with an empty directory and with 1,000 partitions, and `EmbeddedBroker()` in a thread."""
    with ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        kafka = _kafka(stack, work / "kafka", results)
        data_dir = work / "ours"
        empty = _starts(f"{name}, empty", data_dir, kafka, api_versions, settings.rounds)
        with EmbeddedBroker(data_dir) as broker:
            create_topic(broker.bootstrap_servers, name, MANY_PARTITIONS)
        if kafka is not None:
            create_topic(kafka.bootstrap_servers, name, MANY_PARTITIONS)

        def all_served(servers: str) -> None:
            await_records(servers, name, MANY_PARTITIONS, 0)

        many = _starts(f"{name}, {MANY_PARTITIONS} partitions", data_dir, kafka, all_served, settings.rounds)
    embedded_ms = [1000 * construct_s() for _ in range(settings.rounds + 1)][1:]
    say(f"{name}: EmbeddedBroker() {', '.join(f'{took_ms:.0f}' for took_ms in embedded_ms)} ms")
    results.bounds += bounds(empty, many, embedded_ms)


def _starts(
    name: str, data_dir: Path, kafka: RealKafka | None, ready: Callable[[str], None], rounds: int
) -> tuple[list[Start], list[Start]]:
    """Start both in turn, ours and Kafka; return the starts of each, without the first."""
    ours: list[Start] = []
    peer: list[Start] = []
    for number in range(rounds + 1):
        ours.append(start_ours(data_dir, ready))
        say(f"{name}: {round_name(number, rounds)}, {OURS} {ours[-1]}")
        if kafka is not None:
            peer.append(start_kafka(kafka, ready))
            say(f"{name}: {round_name(number, rounds)}, {KAFKA} {peer[-1]}")
    return ours[1:], peer[1:]


def bounds(
    empty: tuple[Sequence[Start], Sequence[Start]],
    many: tuple[Sequence[Start], Sequence[Start]],
    embedded_ms: Sequence[float],
) -> list[Bound]:
    """Return the five figures that have limits; for both kinds of starts ours, then Kafka's."""

    def bound(
        name: str, unit: str, starts: tuple[Sequence[Start], Sequence[Start]], figure: Callable[[Start], float]
    ) -> Bound:
        ours, peer = (tuple(map(figure, side)) for side in starts)
        return Bound(name, unit, ours, peer, KAFKA, LIMITS[name])

    embedded = "broker-ready-embedded-ms"
    return [
        bound("broker-ready-exec-ms", "ms", empty, lambda one: one.ready_s * 1000),
        Bound(embedded, "ms", tuple(embedded_ms), (), "none", LIMITS[embedded]),
        bound("broker-ready-idle-rss-mb", "MB", empty, lambda one: one.rss_mb),
        bound("broker-ready-1000-partitions-s", "s", many, lambda one: one.ready_s),
        bound("broker-ready-1000-partitions-rss-mb", "MB", many, lambda one: one.rss_mb),
    ]


def start_ours(data_dir: Path, ready: Callable[[str], None]) -> Start:
    """Start our broker on a directory and stop it cleanly.

    Raises:
        LoadError: if it does not start.
    """
    command = [sys.executable, "-m", "sparkonce.broker_lite", "--port", "0", "--data-dir", str(data_dir)]
    began = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=_environment())
    with child:
        try:
            assert child.stdout is not None
            servers = child.stdout.readline().strip()
            if not servers:
                raise LoadError(f"our broker did not start on {data_dir}; try: {' '.join(command)}")
            ready(servers)
            ready_s = time.perf_counter() - began
            time.sleep(_IDLE_S)
            return Start(ready_s, rss_mb(child.pid))
        finally:
            child.terminate()
            try:
                child.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                child.kill()


def start_kafka(kafka: RealKafka, ready: Callable[[str], None]) -> Start:
    """Stop Kafka cleanly, and start it again on the same directory."""
    kafka.close()
    began = time.perf_counter()
    kafka.restart()
    ready(kafka.bootstrap_servers)
    ready_s = time.perf_counter() - began
    time.sleep(_IDLE_S)
    return Start(ready_s, rss_mb(kafka.pid))


def construct_s() -> float:
    """Return the seconds that the first `EmbeddedBroker()` takes in a new process that has imported it.

    Raises:
        LoadError: if the process fails.
    """
    command = [sys.executable, "-c", _CONSTRUCT]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=_environment())
    if done.returncode != 0:
        raise LoadError(f"EmbeddedBroker() in a new process failed: {done.stderr[-800:]}")
    return float(done.stdout)


def _environment() -> dict[str, str]:
    """Return an environment in which Python keeps what it has compiled."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def await_records(bootstrap_servers: str, topic: str, partitions: int, rows: int) -> None:
    """Wait until every partition returns its end offset, and check the number of records.

    Raises:
        LoadError: if a partition does not answer in time, or there are not as many records as ``rows``.
    """
    deadline = time.monotonic() + _SERVED_S
    while (offsets := _end_offsets(bootstrap_servers, topic, partitions)) is None:
        if time.monotonic() > deadline:
            raise LoadError(f"not all of {topic} on {bootstrap_servers} is served after {_SERVED_S:.0f} s")
        time.sleep(_ASK_AGAIN_S)
    found = sum(offsets)
    if found != rows:
        raise LoadError(f"{topic} on {bootstrap_servers} holds {found} records; {rows} were acknowledged")


def _end_offsets(bootstrap_servers: str, topic: str, partitions: int) -> list[int] | None:
    try:
        return end_offsets(bootstrap_servers, topic, partitions)
    except OSError:  # Kafka listens a little after it reports that
        return None


def run_recovery(name: str, settings: Settings, results: Results) -> None:
    """Fill a topic, kill the broker, start it again: seconds from the start until all of the topic is served."""
    rows = settings.broker.recovery_bytes // _VALUE_BYTES
    ours: list[float] = []
    peer: list[float] = []
    with ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        kafka = _kafka(stack, work / "kafka", results)
        if kafka is None:
            return  # its tools generate the load
        broker = stack.enter_context(EmbeddedBroker(work / "ours", process=True))
        for number in range(settings.rounds + 1):
            for side, killed, found in ((OURS, broker, ours), (KAFKA, kafka, peer)):
                took_s = recovery_s(killed, f"{name}-{number}", rows if number else max(1, rows // 5))
                say(f"{name}: {round_name(number, settings.rounds)}, {side} {took_s:.2f} s")
                if number:
                    found.append(took_s)
    results.comparisons.append(
        Comparison(name, "s", tuple(ours), tuple(peer), KAFKA, TARGETS[name], less_is_better=True)
    )


def recovery_s(broker: EmbeddedBroker | RealKafka, topic: str, rows: int) -> float:
    """Return the seconds from the start after a SIGKILL until a whole new topic is served; then delete the topic.

    Raises:
        LoadError: if a record that was acknowledged is not there.
    """
    create_topic(broker.bootstrap_servers, topic, PARTITIONS)
    produce(broker.bootstrap_servers, topic, rows, _VALUE_BYTES, _BATCH_BYTES)
    broker.kill()
    began = time.perf_counter()
    broker.restart()
    await_records(broker.bootstrap_servers, topic, PARTITIONS, rows)
    took_s = time.perf_counter() - began
    delete_topic(broker.bootstrap_servers, topic)
    return took_s


def _kafka(stack: ExitStack, directory: Path, results: Results) -> RealKafka | None:
    try:
        return stack.enter_context(_stopped_at_the_end(directory))
    except PeerMissingError as error:
        missing = Missing("kafka", str(error), "install Java and Maven, or name the folder of its jars in KAFKA_LIBS")
        if missing not in results.missing:
            results.missing.append(missing)
        return None


@contextmanager
def _stopped_at_the_end(directory: Path) -> Iterator[RealKafka]:
    kafka = RealKafka(directory)
    try:
        yield kafka
    finally:
        kafka.close()

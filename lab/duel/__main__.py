"""``python -m lab.duel``: two drivers, one ``appId``, one table or topic; each is paused and resumed in turn.

One line for each pause: where it fell, what the other committed meanwhile, how the one that came back ended. Then the
last message of a loser is quoted with the commit that won, and the result is judged by the topic's records alone, read
with librdkafka and delta-rs. The last line is ``RESULT pauses=… fenced=… records=… rows=… lost=… duplicated=…``.

Exit code: 0 if each record came once, both drivers committed, at least one was fenced, and every zombie was; 1 if not;
2 if the duel could not be fought.
"""

from __future__ import annotations

import argparse
import random
import secrets
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path

from lab.bench.load import LoadError
from lab.duel.arena import APP_ID, Arena, TableArena, TopicArena
from lab.duel.driver import Settings
from lab.duel.match import Match
from lab.duel.rival import LIMIT_S, POLL_S, DuelError, Rival, Stop
from lab.store.stores import KINDS, LOCAL, LOCAL_KIND, Store, open_store
from lab.verify.brokers import open_kafka
from lab.verify.cells import RecordPath, Shows
from lab.verify.judge import Verdict
from lab.verify.records import Sending, create_topic, make
from sparkonce.jobs.shared.arguments import empty_folder, working_folder
from sparkonce.jobs.shared.command_line import run_module
from sparkonce.jobs.shared.jars import PeerMissingError

NAMES = ("A", "B")
PATHS = {
    "spark": (RecordPath.SPARK, RecordPath.SPARK),
    "direct": (RecordPath.DIRECT, RecordPath.DIRECT),
    "both": (RecordPath.SPARK, RecordPath.DIRECT),
}
"""The record paths of A and B."""
RECORDS_PER_BATCH = 4_000
"""Few enough that the end of the topic is reached soon, however long a driver was paused."""
FEED_RECORDS, FEED_EVERY_S = 8, 0.1
"""The number of records sent at once, and the interval."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--pauses", type=int, default=24, help="how often one of the two is paused (default: 24)")
    parser.add_argument("--seed", type=int, help="of the moments (default: a new one, which is printed)")
    parser.add_argument(
        "--sink", choices=("delta", "kafka"), default="delta", help="what both write to: a table (default) or a topic"
    )
    parser.add_argument(
        "--path",
        choices=PATHS,
        default="spark",
        help="how records come to the sink: through Spark (default), direct, or both: one driver each",
    )
    parser.add_argument(
        "--kafka", default="embedded", help="embedded (default), real (Apache Kafka from Maven) or host:port"
    )
    parser.add_argument(
        "--store", default=LOCAL_KIND, choices=KINDS, help="where the table is: local (default), s3 (versitygw) or moto"
    )
    parser.add_argument("--keep", type=empty_folder, metavar="FOLDER", help="keep table, checkpoints and logs there")


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    if options.pauses < 1:
        print(f"lab.duel: --pauses {options.pauses}: expected at least 1", file=sys.stderr)
        return 2
    try:
        with (
            working_folder(options.keep, "duel-") as folder,
            open_kafka(options.kafka) as kafka,
            open_store(options.store) as store,
        ):
            return duel(
                kafka.broker.bootstrap_servers, folder, options.pauses, options.seed, options.sink, store, options.path
            )
    except (ValueError, PeerMissingError, LoadError, DuelError) as error:
        print(f"lab.duel: {error}", file=sys.stderr)
        return 2


def duel(
    bootstrap_servers: str, folder: Path, pauses: int, seed: int | None, sink: str = "delta", store: Store = LOCAL,
    path: str = "spark",
) -> int:  # fmt: skip
    """Let two drivers compete; check the result and return the exit code.

    Raises:
        DuelError, LoadError: if the duel could not be run.
    """
    seed = secrets.randbelow(1_000_000) if seed is None else seed
    topic = f"duel-{uuid.uuid4().hex[:8]}"
    place = f"{store.location(folder) or folder}/table" if sink == "delta" else None
    output = None if sink == "delta" else f"{topic}-copies"
    what = "topic" if place is None else "table"
    _say(f"two drivers, one appId, one {what}; seed {seed}: the same moments come with --seed {seed}")
    create_topic(bootstrap_servers, topic)
    with _arena(bootstrap_servers, topic, place, output, store.storage_options) as arena:
        with ExitStack() as stack:
            feed = _Feed(bootstrap_servers, topic)
            feed.start()
            rivals = []
            for name, way in zip(NAMES, PATHS[path], strict=True):
                checkpoints = str(folder / f"{name}.checkpoints")
                settings = Settings(
                    bootstrap_servers, topic, place, output, APP_ID, checkpoints, RECORDS_PER_BATCH,
                    store.storage_options, way.value,
                )  # fmt: skip
                rivals.append(Rival(name, settings, folder))
                stack.callback(rivals[-1].kill)
            match = Match((rivals[0], rivals[1]), arena, random.Random(seed), _say)  # noqa: S311
            match.fight(pauses)
            acknowledged = feed.end()
            _await_rows(arena, len(acknowledged))
        return _tell(match, *arena.judged(acknowledged))


class _Feed(threading.Thread):
    """Sends unique records to all partitions of a topic until it is ended."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        super().__init__(name="feed", daemon=True)
        self._sending = Sending.begin(bootstrap_servers, topic, [])
        self._over = threading.Event()

    def run(self) -> None:
        for first in count(step=FEED_RECORDS):
            self._sending.send(make(range(first, first + FEED_RECORDS)))
            if self._over.wait(FEED_EVERY_S):
                return

    def end(self) -> list[tuple[bytes, bytes]]:
        """End; return key and value of each record.

        Raises:
            LoadError: if not all were acknowledged.
        """
        self._over.set()
        self.join()
        return self._sending.finish()


@contextmanager
def _arena(
    bootstrap_servers: str, topic: str, table: str | None, output: str | None, storage_options: Mapping[str, str]
) -> Iterator[Arena]:
    if table is not None:
        yield TableArena(bootstrap_servers, topic, table, storage_options)
        return
    assert output is not None
    arena = TopicArena(bootstrap_servers, topic, output)
    try:
        yield arena
    finally:
        arena.close()


def _await_rows(arena: Arena, expected: int) -> None:
    """Wait until all records have arrived; correctness is checked later."""
    deadline = time.monotonic() + LIMIT_S
    while arena.records() < expected:
        if time.monotonic() > deadline:
            _say(f"the result did not come to hold {expected} records within {LIMIT_S:g} s")
            return
        time.sleep(POLL_S * 10)


def _tell(match: Match, verdict: Verdict, rows: int) -> int:
    stops = [stop for rival in match.rivals for stop in rival.stops]
    fenced = [stop for stop in stops if stop.is_fenced]
    refused = [stop for stop in stops if stop.is_refused]
    others = [stop for stop in stops if not stop.is_fenced and not stop.is_refused]
    committed = match.committed()
    _say(", ".join(f"{name} committed {number} batches" for name, number in committed.items()))
    _say(f"{len(fenced)} queries were fenced at their commit, {len(refused)} refused before their tasks")
    for error in sorted({stop.error for stop in others}):
        _say(f"{sum(stop.error == error for stop in others)} ended otherwise: {error}")
    for line in verdict.strange:
        _say(f"strange: {line}")
    unfenced = [bout.number for bout in match.bouts if bout.is_wrong]
    if unfenced:
        _say(f"came back with an outdated batch and was not fenced: pauses {unfenced}")
    _quote(match, fenced)
    _say(
        f"RESULT pauses={len(match.bouts)} fenced={len(fenced)} records={verdict.records} rows={rows} "
        f"lost={verdict.lost} duplicated={verdict.duplicated}"
    )
    good = verdict.contradicts(Shows.NEITHER, 0) is None and bool(fenced) and not unfenced and all(committed.values())
    return 0 if good else 1


def _quote(match: Match, fenced: list[Stop]) -> None:
    """Print the last error of a fenced driver that names the winner's commit."""
    named = [stop for stop in fenced if match.winner(stop)]
    if named:
        _say(f"the loser's message:\n  {named[-1].error}\nthe winner: {match.winner(named[-1])}")


def _say(line: str) -> None:
    print(line, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status."""
    return run_module("lab.duel", add_arguments, run, arguments)


if __name__ == "__main__":
    sys.exit(main())

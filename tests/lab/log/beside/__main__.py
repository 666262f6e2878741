"""A query of ours and delta-spark write the same tables on local disk at the same time, and every commit is judged.

For each kind of table, ours appends batches, makes checkpoints and cleans the log up, while delta-spark runs chosen
statements: INSERT, DELETE, UPDATE, MERGE, OPTIMIZE, VACUUM, RESTORE, ALTER TABLE. In between, and at last, the table is
read by delta-spark and by delta-rs, and compared with what all statements and batches together must have left, in the
order of the log.

delta-spark's own way to commit on a local disk looks whether a version is there, and renames its file to it: a commit
that has landed in between is replaced. So by default it gets a LogStore that links its file, which fails if the version
is there; ``--log-store rename`` leaves it its own.

The last line is ``RESULT … lost=0 duplicated=0 resurrected=0 wrong=0 violations=0``; the exit code is 0 only if it is
so, and `violations` counts rules that were broken, too.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from deltalake import DeltaTable, QueryBuilder
from pyspark.sql import SparkSession

from lab.java_classes import compiled
from sparkonce import spark_session
from sparkonce.jobs.shared.arguments import empty_folder, working_folder
from sparkonce.jobs.shared.exit_status import FAILED, GOOD, USAGE
from sparkonce.jobs.shared.jars import PeerMissingError, delta_jars
from tests.conftest import DELTA_CONF, SPARK_CONF
from tests.lab.log.beside.judge import LogJudge
from tests.lab.log.beside.statements import KINDS, Kind, Rows
from tests.lab.log.beside.writers import SCHEMA, Ours, Theirs
from tests.unit.sink.query_by_hand import Query

COMPARED_EVERY = 8
_LOG_STORE = """\
import io.delta.storage.HDFSLogStore;
import java.io.IOException;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.UUID;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;

public final class LinkingLogStore extends HDFSLogStore {
  public LinkingLogStore(Configuration configuration) {
    super(configuration);
  }

  @Override
  public void write(Path path, Iterator<String> actions, Boolean overwrite, Configuration configuration)
      throws IOException {
    if (overwrite) {
      super.write(path, actions, true, configuration);
      return;
    }
    java.nio.file.Path target = Paths.get(path.toUri().getPath());
    java.nio.file.Path written = target.resolveSibling("." + target.getFileName() + "." + UUID.randomUUID() + ".tmp");
    List<String> lines = new ArrayList<>();
    actions.forEachRemaining(lines::add);
    Files.write(written, lines);
    try {
      Files.createLink(target, written);
    } finally {
      Files.delete(written);
    }
  }
}
"""


@dataclass(frozen=True, slots=True)
class Difference:
    """Between the rows that a reader finds and those that must be there."""

    lost: int
    doubled: int
    unexpected: int
    """Rows that must not be there: resurrected, or of an attempt that failed."""
    wrong: int

    @property
    def total(self) -> int:
        """Zero if the rows are right."""
        return self.lost + self.doubled + self.unexpected + self.wrong


def difference(found: Sequence[tuple[int, int]], expected: Rows) -> Difference:
    """Compare rows, each a key and a value."""
    counts = Counter(key for key, _ in found)
    return Difference(
        lost=len(expected.keys() - counts.keys()),
        doubled=counts.total() - len(counts),
        unexpected=len(counts.keys() - expected.keys()),
        wrong=sum(expected.get(key, value) != value for key, value in found),
    )


class Beside:
    """One table and its two writers."""

    def __init__(self, spark: SparkSession, kind: Kind, folder: Path, seed: int) -> None:
        self.spark, self.kind = spark, kind
        self.table = folder / "table"
        self.judge = LogJudge(self.table)
        query = Query(folder, schema=SCHEMA)
        self.ours = Ours(query, self.judge, Random(f"{seed} {kind.name} ours"))
        self.theirs = Theirs(spark, kind, self.ours, self.judge, Random(f"{seed} {kind.name} theirs"))
        self.differences: Counter[str] = Counter()
        self.compared: Counter[str] = Counter()
        self.unread: dict[str, str] = {}

    def run(self, enough: Callable[[int], bool]) -> None:
        """Let both write until so many statements are enough, and judge."""
        self.theirs.create()
        with self.ours.running():
            while not enough(self.theirs.number):
                self.theirs.next()
                self.ours.check()
                if self.theirs.number % COMPARED_EVERY == 0:
                    with self.ours.turn:
                        self.compare()
        self.judge.end()
        jvm = self.spark._jvm
        assert jvm is not None
        jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
        self.compare()

    def compare(self) -> None:
        """Compare what each reader finds with what must be there, while nobody writes."""
        self.judge.catch_up()
        expected = self.judge.rows[self.judge.version]
        for name, found in self._readings().items():
            self.compared[name] += 1
            if (differs := difference(found, expected)).total:
                self.judge.rules.fail("read", f"version {self.judge.version} by {name}: {differs}")
                for what in ("lost", "doubled", "unexpected", "wrong"):
                    self.differences[what] += getattr(differs, what)

    def _readings(self) -> Mapping[str, list[tuple[int, int]]]:
        frame = self.spark.read.format("delta").load(str(self.table))
        found = {"delta-spark": [(row.k, row.v) for row in frame.select("k", "v").collect()]}
        if frame.where(f"NOT ({self.kind.expect})").count():
            self.judge.rules.fail("rows", f"{self.kind.expect} does not hold at version {self.judge.version}")
        if self.kind.row_ids:
            ids = [row.row_id for row in frame.select("_metadata.row_id").collect()]
            if len(set(ids)) != len(ids) or None in ids:
                self.judge.rules.fail("row-ids", f"delta-spark reads {len(ids)} rows with {len(set(ids))} ids")
        try:
            found["delta-rs"] = _delta_rs(self.table)
        except Exception as error:  # it has errors of many kinds for tables that it does not read
            self.unread["delta-rs"] = f"{type(error).__name__}: {error}"
        return found

    @property
    def violations(self) -> list[str]:
        """What was wrong, the rows' differences among it."""
        told = [("batch", number) for number in self.ours.acknowledged]
        lost = [f"lost: {what} {number} is not in the log" for what, number in self.judge.lost(told)]
        stored = self.judge.rules.stored.get(("app", 0), 0)
        if stored != self.ours.next_offset:
            lost.append(f"offsets: {stored} is stored, and batches end at {self.ours.next_offset}")
        return [*self.judge.rules.violations, *lost]

    def __str__(self) -> str:
        kinds = Counter(operation_of(data) for data in self.judge.commits.values())
        return (
            f"TABLE {self.kind.name} versions={self.judge.version + 1} batches={len(self.ours.acknowledged)} "
            f"statements={self.theirs.done.total()} conflicts={self.theirs.conflicts.total()} "
            f"refused={self.theirs.refused.total()} ours_again={dict(self.ours.refused)} "
            f"checkpoints={self.judge.rules.seen['checkpoint']} commits_cleaned={self.judge.deleted} "
            f"compared={dict(self.compared)} unread={self.unread} rows={len(self.judge.rows[self.judge.version])} "
            f"violations={len(self.violations)}\n  {dict(self.theirs.done)}\n  {dict(kinds)}"
        )


def operation_of(data: bytes) -> str:
    """Return who made a commit, and what it is called."""
    info = json.loads(data.split(b"\n", 1)[0])["commitInfo"]
    who = "ours" if info.get("engineInfo", "").startswith("sparkonce/") else "theirs"
    return f"{who} {info['operation']}"


def _delta_rs(table: Path) -> list[tuple[int, int]]:
    found = QueryBuilder().register("t", DeltaTable(table)).execute("SELECT k, v FROM t").read_all()
    return list(zip(found["k"].to_pylist(), found["v"].to_pylist(), strict=True))


def main() -> int:
    """Run the command line; return the exit code."""
    options = _arguments()
    try:
        with working_folder(options.folder, "beside-") as folder:
            jars = delta_jars()
            linking = [] if options.log_store == "rename" else [compiled("LinkingLogStore", _LOG_STORE, jars, folder)]
            spark = spark_session("beside", **_conf([*jars, *linking]))
            spark.sparkContext.setLogLevel("OFF")
            try:
                return _run(options, spark, folder)
            finally:
                spark.stop()
    except PeerMissingError as error:
        print(f"beside: {error}", file=sys.stderr)
        return USAGE


def _conf(jars: Sequence[str]) -> dict[str, str]:
    linking = {"spark.delta.logStore.file.impl": "LinkingLogStore"} if "LinkingLogStore" in jars[-1] else {}
    return {
        **SPARK_CONF,
        **DELTA_CONF,
        **linking,
        "spark.jars": ",".join(jars),
        "spark.databricks.delta.retentionDurationCheck.enabled": "false",
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",  # else a VACUUM can have 10,000 tasks
        "spark.ui.enabled": "false",
    }


def _run(options: argparse.Namespace, spark: SparkSession, folder: Path) -> int:
    kinds = [kind for kind in KINDS if kind.name in (options.tables or [each.name for each in KINDS])]
    print(f"seed {options.seed}, LogStore that {options.log_store}s", flush=True)
    tables = []
    for kind in kinds:
        until_s = time.monotonic() + options.minutes * 60 / len(kinds)
        each = Beside(spark, kind, folder / kind.name, options.seed)
        tables.append(each)
        each.run(lambda number, end_s=until_s: number >= options.statements or time.monotonic() > end_s)  # type: ignore[misc]
        print(each, flush=True)
        for violation in each.violations[:20]:
            print(f"  {violation}", flush=True)
    violations = sum(len(each.violations) for each in tables)
    differences = sum((each.differences for each in tables), Counter())
    print(
        f"RESULT tables={len(tables)} batches={sum(len(each.ours.acknowledged) for each in tables)} "
        f"statements={sum(each.theirs.done.total() for each in tables)} "
        f"conflicts={sum(each.theirs.conflicts.total() for each in tables)} "
        f"versions={sum(each.judge.version + 1 for each in tables)} lost={differences['lost']} "
        f"duplicated={differences['doubled']} resurrected={differences['unexpected']} wrong={differences['wrong']} "
        f"violations={violations}"
    )
    return FAILED if violations else GOOD


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.lab.log.beside", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10, help="for all tables together (default: 10)")
    parser.add_argument("--statements", type=int, default=10**9, help="end a table after so many (default: no end)")
    parser.add_argument("--seed", type=int, default=45)
    parser.add_argument("--tables", nargs="*", choices=[kind.name for kind in KINDS], help="default: all")
    parser.add_argument("--log-store", choices=("link", "rename"), default="link", help="of delta-spark")
    parser.add_argument("--folder", type=empty_folder, help="keep the tables there; by default they are removed")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())

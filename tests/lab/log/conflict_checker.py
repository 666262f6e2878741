"""delta-spark's own verdict of a pair of commits, asked over py4j.

Its snapshot of a table is loaded once, and its conflict checker reads the commits in between from files: that takes
milliseconds, where a whole commit takes a second. `whole_commit` makes one, to show that both say the same.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.commit_pairs import FILE_ROWS, OUR_COMMITS, OURS, TABLES, TIME_MS, Line, Ours, Pair, Table

ANOTHER_TXN = "f9f7a7a2-2d55-4b0a-93cf-5a0f6c1f8d21"


def write_commit(table: Path, version: int, lines: Iterable[Line]) -> Path:
    """Write a commit's file."""
    path = table / "_delta_log" / f"{version:020d}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return path


def is_append(lines: Iterable[Line]) -> bool:
    """Whether delta-spark would mark a transaction that read no files as a blind append."""
    return not any("remove" in line for line in lines)


REFUSED = (Py4JJavaError, PySparkException)


@dataclass(slots=True)
class ConflictChecker:
    """Asks delta-spark in a session."""

    spark: SparkSession
    folder: Path
    _loaded: dict[str, Any] = field(default_factory=dict)
    _actions: dict[str, Any] = field(default_factory=dict)

    @property
    def _jvm(self) -> Any:
        return self.spark._jvm

    @property
    def _delta(self) -> Any:
        return self._jvm.org.apache.spark.sql.delta

    def answer(self, pair: Pair) -> str | None:
        """Return the class of the exception that stops our commit; None if it may be made."""
        table, ours = TABLES[pair.table], OUR_COMMITS[pair.ours]
        folder = self.folder / pair.table
        txn = self._transaction(pair.table, ours)
        written = [write_commit(folder, version, lines) for version, lines in enumerate(pair.landed(), 1)]
        operation = self._operation(ours)
        info = self._transaction_info(table, ours, txn, operation)
        try:
            level = txn.getIsolationLevelToUse(info.actions(), operation)
            txn.checkForConflicts(1, info, 1, level)
        except REFUSED as error:
            return class_of(error)
        finally:
            for path in written:
                path.unlink()
        return None

    def whole_commit(self, pair: Pair, folder: Path) -> str | None:
        """Return the same, from a commit in a table of its own."""
        table, ours = TABLES[pair.table], OUR_COMMITS[pair.ours]
        write_commit(folder, 0, table.first_commit())
        txn = self._delta.DeltaLog.forTable(self.spark._jsparkSession, str(folder)).startTransaction()
        self._reads(table, ours, txn)
        for version, lines in enumerate(pair.landed(), 1):
            write_commit(folder, version, lines)
        lines = ours.lines(table)
        for line in lines:
            if "metaData" in line:
                txn.updateMetadata(self._action(line), False)
        rest = [self._action(line) for line in lines if "metaData" not in line]
        try:
            txn.commit(self._seq(rest), self._operation(ours))
        except REFUSED as error:
            return class_of(error)
        return None

    def beside(self, folder: Path, landed: Path, *, replaces: bool) -> str | None:
        """Return the same of an append, or a replace, in the table at ``folder``, where ``landed`` comes first."""
        txn = self._delta.DeltaLog.forTable(self.spark._jsparkSession, str(folder)).startTransaction()
        txn.txnVersion(OURS)
        removed = self._jvm.scala.jdk.javaapi.CollectionConverters.asJava(txn.filterFiles()) if replaces else ()
        shutil.copy(landed, folder / "_delta_log")
        actions = [self._action({"txn": {"appId": OURS, "version": 9}}), *(each.remove() for each in removed)]
        try:
            txn.commit(self._seq(actions), self._operation(OUR_COMMITS["replace" if replaces else "append"]))
        except REFUSED as error:
            return class_of(error)
        return None

    def _transaction(self, name: str, ours: Ours) -> Any:
        """Return a transaction that has read the table at version 0."""
        log, snapshot = self._loaded.get(name, (None, None))
        if log is None:
            write_commit(self.folder / name, 0, TABLES[name].first_commit())
            log = self._delta.DeltaLog.forTable(self.spark._jsparkSession, str(self.folder / name))
            snapshot = log.update(False, self._none(), self._none())
            self._loaded[name] = log, snapshot
        txn = self._delta.OptimisticTransaction(log, self._none(), snapshot)
        self._reads(TABLES[name], ours, txn)
        return txn

    def _reads(self, table: Table, ours: Ours, txn: Any) -> None:
        """Note what our commit read, as an overwrite of Spark does."""
        for app_id in ours.read:
            txn.txnVersion(app_id)
        if ours.replaces:
            literal = self._jvm.org.apache.spark.sql.catalyst.expressions.Literal.TrueLiteral()
            txn.trackReadPredicates(self._seq([literal]), False, True)
            adds = [self._action(line) for line in table.first_commit() if "add" in line]
            txn.trackFilesRead(self._seq(adds))

    def _transaction_info(self, table: Table, ours: Ours, txn: Any, operation: Any) -> Any:
        snapshot, lines = txn.snapshot(), ours.lines(table)
        actions = [self._action(line) for line in lines]
        changed = [action for line, action in zip(lines, actions, strict=True) if "metaData" in line]
        about = {"timestamp": TIME_MS + 99, "operation": "WRITE", "operationParameters": {}}
        about |= {"inCommitTimestamp": TIME_MS + 99} if table.timed else {}
        commit_info = self._action({"commitInfo": {**about, "isBlindAppend": not ours.replaces and is_append(lines)}})
        domains = [action for line, action in zip(lines, actions, strict=True) if "domainMetadata" in line]
        return self._delta.CurrentTransactionInfo(
            ANOTHER_TXN,
            self._scala(txn.readPredicates()).toVector(),
            self._scala(txn.readFiles()).toSet(),
            False,
            txn.readTxn().toSet(),
            changed[0] if changed else snapshot.metadata(),
            snapshot.protocol(),
            self._seq(actions),
            snapshot,
            self._jvm.scala.Some(commit_info),
            2 * FILE_ROWS - 1 if table.has("rowTracking") else -1,
            self._none(),
            self._seq(domains),
            operation,
            self._none(),
            self._none(),
            self._none(),
        )

    def _operation(self, ours: Ours) -> Any:
        modes = self._jvm.org.apache.spark.sql.SaveMode
        mode = modes.Overwrite if ours.replaces else modes.Append
        return getattr(self._delta, "DeltaOperations$Write")(mode, *(self._none() for _ in range(8)))

    def _action(self, line: Line) -> Any:
        text = json.dumps(line)
        if text not in self._actions:
            self._actions[text] = self._delta.actions.Action.fromJson(text)
        return self._actions[text]

    def _none(self) -> Any:
        return self._jvm.scala.Option.empty()

    def _scala(self, collection: Any) -> Any:
        copied = self._jvm.java.util.ArrayList(collection)
        return self._jvm.scala.jdk.javaapi.CollectionConverters.asScala(copied)

    def _seq(self, values: Iterable[Any]) -> Any:
        found = self._jvm.java.util.ArrayList()
        for value in values:
            found.add(value)
        return self._scala(found).toSeq()


def class_of(error: Exception) -> str:
    """Return the class of an exception in Java; once delta is imported, it is one in Python with the same name."""
    if isinstance(error, Py4JJavaError):
        return str(error.java_exception.getClass().getSimpleName())
    return type(error).__name__

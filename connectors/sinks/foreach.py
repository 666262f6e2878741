"""A database as the result of a query: rows and offsets in one SQL transaction, so exactly once.

For `exactly_once.foreach_batch.ForeachBatch`, over any DB-API connection (PEP 249). Two small tables are kept beside
the user's: what is stored for each offset, and one row for each commit. Commits are numbered, and the number is a
primary key: of two drivers that read the same number, the second cannot insert its row and so commits nothing.

Rows are written first, then offsets, then the commit's row, all in one transaction. But if a user's statement ends it
early, as DDL does in MySQL and Oracle, rows are without their offsets and the batch is replayed; in the opposite order
the batch would count as written, and its rows would be lost.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from sparkonce.offset_store.errors import CommitConflictError
from sparkonce.offset_store.fingerprint import Fingerprint
from sparkonce.offset_store.record import (
    COMMIT_INFO_KEY,
    Commit,
    CommittedBatch,
    FileT,
    PartitionKey,
    Writes,
    read_history,
)
from sparkonce.offset_store.store import Snapshot, SnapshotSource
from sparkonce.offset_store.txn_ids import (
    query_txn_id,
    stored_epochs,
    stored_fingerprint,
    stored_offset,
    transactions_onto,
)

_TABLES = (
    "CREATE TABLE IF NOT EXISTS sparkonce_commits (app_id VARCHAR(200) NOT NULL, number BIGINT NOT NULL, "
    "at_ms BIGINT NOT NULL, record TEXT NOT NULL, PRIMARY KEY (app_id, number))",
    "CREATE TABLE IF NOT EXISTS sparkonce_offsets (app_id VARCHAR(200) NOT NULL, txn_id VARCHAR(500) NOT NULL, "
    "version BIGINT NOT NULL, PRIMARY KEY (app_id, txn_id))",
)


@dataclass(frozen=True, slots=True)
class SqlResult(SnapshotSource):
    """A database that holds the rows and the offsets of one application.

    Args:
        connect: opens a connection; each snapshot and each commit uses one of its own and closes it.
        app_id: a name for this pipeline, stable over restarts.
        write: writes a batch's DataFrame to the database through the connection passed to it; it must not commit, nor
            run statements that commit implicitly: DDL in MySQL and Oracle, ``executescript`` in sqlite3.
        placeholder: what stands for a value in this driver's SQL: ``?`` (sqlite3) or ``%s`` (psycopg, mysqlclient).
    """

    connect: Callable[[], Any]
    app_id: str
    write: Callable[[Any, Any], None]
    placeholder: str = "?"

    def snapshot(self) -> SqlSnapshot:
        """Return a snapshot of what is stored; creates the two tables if they are missing.

        Raises:
            ValueError: if connections commit after each statement.
        """
        with closing(self.open()) as connection:
            cursor = connection.cursor()
            for statement in _TABLES:
                cursor.execute(statement)
            connection.commit()
            version = self._newest(cursor)
            cursor.execute(self.sql("SELECT txn_id, version FROM sparkonce_offsets WHERE app_id = ?"), (self.app_id,))
            return SqlSnapshot(self, version, {str(txn_id): int(at) for txn_id, at in cursor.fetchall()})

    def open(self) -> Any:
        """Open a connection that has transactions.

        Raises:
            ValueError: if it commits after each statement.
        """
        connection = self.connect()
        if _commits_each_statement(connection):
            connection.close()
            raise ValueError(
                "the connection that connect() opens commits after each statement (autocommit), so rows and offsets "
                "cannot be in one transaction: open it without autocommit (for sqlite3, without isolation_level=None)"
            )
        return connection

    def sql(self, statement: str) -> str:
        """Return a statement with this driver's placeholder."""
        return statement.replace("?", self.placeholder)

    def newest(self) -> int:
        """Return the number of the last commit; 0 before the first."""
        with closing(self.open()) as connection:
            return self._newest(connection.cursor())

    def _newest(self, cursor: Any) -> int:
        cursor.execute(self.sql("SELECT MAX(number) FROM sparkonce_commits WHERE app_id = ?"), (self.app_id,))
        return int(cursor.fetchone()[0] or 0)

    def __str__(self) -> str:
        return "the database"


@dataclass(frozen=True, slots=True)
class SqlSnapshot(Snapshot):
    """The database after one commit; see `offset_store.store.Snapshot`."""

    result: SqlResult
    version: int = field()
    stored: Mapping[str, int]

    def last_batch(self, query_id: str) -> int | None:
        """See `Snapshot.last_batch`."""
        return self.stored.get(query_txn_id(self.result.app_id, query_id))

    def fingerprint(self, query_id: str, batch_id: int) -> Fingerprint | None:
        """See `Snapshot.fingerprint`."""
        return stored_fingerprint(self.stored.get, self.result.app_id, query_id, batch_id)

    def next_offsets(self, keys: Iterable[PartitionKey]) -> dict[PartitionKey, int]:
        """See `Snapshot.next_offsets`."""
        looked_up = {key: stored_offset(self.stored.get, self.result.app_id, key) for key in keys}
        return {key: offset for key, offset in looked_up.items() if offset is not None}

    def epochs(self, keys: Iterable[PartitionKey]) -> dict[PartitionKey, int]:
        """See `Snapshot.epochs`."""
        return stored_epochs(self.stored.get, self.result.app_id, keys)

    def commit(self, commit: Commit[FileT]) -> None:
        """See `Snapshot.commit`."""
        with closing(self.result.open()) as connection:
            try:
                self._write(connection, commit)
                connection.commit()
                return
            except Exception as error:
                connection.rollback()
                failure = error
        if self.result.newest() > self.version:
            raise CommitConflictError(f"another commit has number {self.version + 1}: {failure}") from failure
        raise failure

    def _write(self, connection: Any, commit: Commit[FileT]) -> None:
        if Writes.ROWS in commit.writes:
            for rows in commit.files:
                self.result.write(connection, rows)
        app_id, sql = self.result.app_id, self.result.sql
        cursor = connection.cursor()
        for txn_id, version in transactions_onto(self.stored.get, commit).items():
            cursor.execute(sql("DELETE FROM sparkonce_offsets WHERE app_id = ? AND txn_id = ?"), (app_id, txn_id))
            values = (app_id, txn_id, version)
            cursor.execute(sql("INSERT INTO sparkonce_offsets (app_id, txn_id, version) VALUES (?, ?, ?)"), values)
        line = (app_id, self.version + 1, time.time_ns() // 1_000_000, _to_text(commit))
        cursor.execute(sql("INSERT INTO sparkonce_commits (app_id, number, at_ms, record) VALUES (?, ?, ?, ?)"), line)

    def history(self, limit: int | None = None) -> list[CommittedBatch]:
        """See `Snapshot.history`."""
        oldest = 0 if limit is None else self.version - limit
        statement = (
            "SELECT number, at_ms, record FROM sparkonce_commits "
            "WHERE app_id = ? AND number > ? AND number <= ? ORDER BY number DESC"
        )
        with closing(self.result.open()) as connection:
            cursor = connection.cursor()
            cursor.execute(self.result.sql(statement), (self.result.app_id, oldest, self.version))
            lines = cursor.fetchall()
        return read_history(
            {"version": number, "timestamp": at_ms, COMMIT_INFO_KEY: json.loads(record)}
            for number, at_ms, record in lines
        )


def _to_text(commit: Commit[FileT]) -> str:
    return json.dumps(commit.record.to_commit_info(commit.writes), separators=(",", ":"))


def _commits_each_statement(connection: Any) -> bool:
    """Whether a DB-API connection has no transactions, as far as drivers show it.

    ``autocommit`` is an attribute in psycopg, mysql-connector and sqlite3 from Python 3.12 on, and a method that sets
    it in mysqlclient and PyMySQL, which show it by ``get_autocommit``.
    """
    if getattr(connection, "autocommit", None) is True:
        return True
    if isinstance(connection, sqlite3.Connection):
        legacy = getattr(connection, "autocommit", -1) == -1
        return legacy and connection.isolation_level is None
    tell = getattr(connection, "get_autocommit", None)
    return callable(tell) and bool(tell())

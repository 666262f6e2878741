"""What delta-spark is asked to do to a table, and which rows each statement takes, changes and adds.

A row is a key ``k`` and a value ``v``. Keys of our batches are their offsets; those of statements begin at `THEIRS`,
and none is used twice, so that a row that comes back is seen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

THEIRS = 1_000_000
MOST_ROWS = 30
"""Of one batch, or one statement."""
Rows = Mapping[int, int]
Changes = dict[int, int | None]
"""By key: the new value, or None where the row is taken out."""


def _nothing(_: Rows) -> Changes:
    return {}


@dataclass(frozen=True, slots=True)
class Statement:
    """Its text, with `{t}` for the table, and what it does to the rows that it reads."""

    kind: str
    sql: str
    changes: Callable[[Rows], Changes] = _nothing
    restores: int | None = None
    """The version whose rows it brings back."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A table, and what else is done to it than to all."""

    name: str
    properties: Mapping[str, str] = field(default_factory=dict)
    columns: str = "k BIGINT, v BIGINT"
    tail: str = ""
    alterations: Sequence[str] = ()
    expect: str = "true"
    """What holds for each row."""
    row_ids: bool = False


VECTORS = {"delta.enableDeletionVectors": "true"}
ROW_IDS = {"delta.enableRowTracking": "true"}
TIMESTAMPS = {"delta.enableInCommitTimestamps": "true"}
KINDS = (
    Kind("plain", alterations=["OPTIMIZE {t} ZORDER BY (v)"]),
    Kind("row-tracking", ROW_IDS, row_ids=True),
    Kind("in-commit-timestamps", TIMESTAMPS),
    Kind("deletion-vectors", VECTORS, alterations=["REORG TABLE {t} APPLY (PURGE)"]),
    Kind("column-mapping", {"delta.columnMapping.mode": "name", **VECTORS}),
    Kind("clustering", tail="CLUSTER BY (k)", alterations=["ALTER TABLE {t} CLUSTER BY (v)", "OPTIMIZE {t} FULL"]),
    Kind(
        "constraint-and-generated",
        columns="k BIGINT, v BIGINT NOT NULL, twice BIGINT GENERATED ALWAYS AS (k * 2)",
        alterations=["ALTER TABLE {t} ADD CONSTRAINT c{n} CHECK (k >= 0)"],
        expect="twice = k * 2",
    ),
    Kind(
        "all-at-once",
        {**VECTORS, **ROW_IDS, **TIMESTAMPS, "delta.columnMapping.mode": "name", "delta.checkpointPolicy": "v2"},
        tail="CLUSTER BY (k)",
        alterations=["ALTER TABLE {t} CLUSTER BY (v)", "REORG TABLE {t} APPLY (PURGE)"],
        row_ids=True,
    ),
)
ALTERATIONS = (
    "ALTER TABLE {t} SET TBLPROPERTIES ('lab.number' = '{n}')",
    "ALTER TABLE {t} SET TBLPROPERTIES ('delta.checkpointInterval' = '{few}')",
    "ALTER TABLE {t} ADD COLUMN c{n} STRING",
    "ALTER TABLE {t} ALTER COLUMN v COMMENT 'number {n}'",
)
WEIGHTS = {"insert": 4, "delete": 3, "update": 3, "merge": 4, "optimize": 2, "vacuum": 1, "restore": 2, "alter": 4}


def create(kind: Kind) -> str:
    """Return the statement that makes a table."""
    properties = {"delta.checkpointInterval": "7", "delta.deletedFileRetentionDuration": "interval 36 seconds"}
    text = ", ".join(f"'{name}' = '{value}'" for name, value in {**properties, **kind.properties}.items())
    return f"CREATE TABLE {{t}} ({kind.columns}) USING delta {kind.tail} TBLPROPERTIES ({text})"


def choose(rng: Random, kind: Kind, number: int, newest_version: int, next_offset: int) -> Statement:
    """Choose the statement with this number, for a table that has these versions and our rows up to this offset."""
    what = rng.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
    if what == "insert":
        return _insert(number, rng.randint(1, MOST_ROWS))
    if what == "merge":
        return _merge(number, rng.randrange(next_offset + 1))
    if what in ("delete", "update"):
        divisor = rng.choice((3, 5, 7, 11))
        return (_delete if what == "delete" else _update)(number, divisor, rng.randrange(divisor))
    if what == "restore":
        version = newest_version - rng.randrange(min(12, newest_version + 1))
        return Statement(what, f"RESTORE TABLE {{t}} TO VERSION AS OF {version}", restores=version)
    if what == "alter":
        text = rng.choice((*ALTERATIONS, *kind.alterations))
        return Statement(what, text.replace("{n}", str(number)).replace("{few}", str(rng.randint(3, 12))))
    return Statement(what, "OPTIMIZE {t}" if what == "optimize" else "VACUUM {t} RETAIN 0.01 HOURS")


def _insert(number: int, count: int) -> Statement:
    first = THEIRS + number * MOST_ROWS
    sql = f"INSERT INTO {{t}} (k, v) SELECT id, {number} FROM range({first}, {first + count}, 1, 1)"
    return Statement("insert", sql, lambda _: dict.fromkeys(range(first, first + count), number))


def _delete(number: int, divisor: int, rest: int) -> Statement:
    sql = f"DELETE FROM {{t}} WHERE k % {divisor} = {rest}"
    return Statement("delete", sql, lambda rows: {key: None for key in rows if key % divisor == rest})


def _update(number: int, divisor: int, rest: int) -> Statement:
    sql = f"UPDATE {{t}} SET v = v + {number} WHERE k % {divisor} = {rest}"
    return Statement(
        "update", sql, lambda rows: {key: value + number for key, value in rows.items() if key % divisor == rest}
    )


def _merge(number: int, ours_from: int) -> Statement:
    """Take out or change rows of ours from an offset on, and those that the last statement may have added; add some."""
    first = THEIRS + number * MOST_ROWS
    theirs_from, theirs_to, ours_to = first - MOST_ROWS // 2, first + MOST_ROWS // 2, ours_from + 2 * MOST_ROWS
    source = (
        f"SELECT id AS k FROM range({ours_from}, {ours_to}) UNION ALL SELECT id FROM range({theirs_from}, {theirs_to})"
    )
    sql = (
        f"MERGE INTO {{t}} t USING ({source}) s ON t.k = s.k WHEN MATCHED AND s.k % 3 = 0 THEN DELETE "
        f"WHEN MATCHED THEN UPDATE SET v = {number} WHEN NOT MATCHED AND s.k >= {first} THEN "
        f"INSERT (k, v) VALUES (s.k, {number})"
    )

    def changes(rows: Rows) -> Changes:
        matched = rows.keys() & {*range(ours_from, ours_to), *range(theirs_from, theirs_to)}
        new = range(first, theirs_to)
        return {**dict.fromkeys(new, number), **{key: None if key % 3 == 0 else number for key in matched}}

    return Statement("merge", sql, changes)

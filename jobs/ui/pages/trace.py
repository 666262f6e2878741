"""The page *Trace*: from a row of a table to its record, and from a record to its rows, with proofs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from sparkonce.exactly_once.audit_report import Verdict
from sparkonce.jobs.ui.delta.paced import PacedResults
from sparkonce.jobs.ui.delta.rows import OPERATORS, Condition, RowsFound
from sparkonce.jobs.ui.delta.tables import TableWatch
from sparkonce.jobs.ui.delta.tracing import RecordTrace, RowTrace, trace_record, trace_rows
from sparkonce.jobs.ui.page import Page, PageRequest
from sparkonce.jobs.ui.pages.tables import table_of
from sparkonce.jobs.ui.site import Site
from sparkonce.offset_store.errors import OffsetStoreError

CONDITIONS = 3

_rows: PacedResults[tuple[RowsFound, list[RowTrace]]] = PacedResults()
_records: PacedResults[tuple[list[RecordTrace], Mapping[str, str]]] = PacedResults()


def _data(site: Site, asked: PageRequest) -> Mapping[str, Any]:
    watches, left_out = site.watches()
    chosen = table_of(site, asked.query["table"]) if asked.query.get("table") else None
    data: dict[str, Any] = {
        "watches": watches,
        "left_out": left_out,
        "chosen": chosen,
        "columns": [] if chosen is None else _columns(chosen),
        "operators": OPERATORS,
        "conditions": _conditions(asked),
        "numbers": range(1, CONDITIONS + 1),
        "found": None,
        "traces": [],
        "records": None,
        "problem": "",
        "unread": {},
    }
    if asked.query.get("offset"):
        return {**data, **_of_record(watches, asked)}
    if chosen is not None and data["conditions"]:
        return {**data, **_of_rows(chosen, tuple(data["conditions"]))}
    return data


def _of_rows(watch: TableWatch, wanted: tuple[Condition, ...]) -> Mapping[str, Any]:
    try:
        found, traces = _rows.get((watch.place, _verdict_of(watch), wanted), partial(trace_rows, watch, wanted))
    except ValueError as error:
        return {"problem": str(error)}
    return {"found": found, "traces": traces}


def _of_record(watches: list[TableWatch], asked: PageRequest) -> Mapping[str, Any]:
    topic, numbers = asked.query.get("topic", ""), [asked.number(name, -1) for name in ("partition", "offset")]
    if not topic or min(numbers) < 0:
        return {
            "problem": "a record has a topic, a partition and an offset: give all three, the latter as whole numbers"
        }
    tables = tuple((watch.place, _verdict_of(watch)) for watch in watches)
    traces, unread = _records.get((tables, topic, *numbers), partial(_traced, watches, topic, *numbers))
    return {"records": traces, "unread": unread}


def _traced(
    watches: Sequence[TableWatch], topic: str, partition: int, offset: int
) -> tuple[list[RecordTrace], Mapping[str, str]]:
    """Return the rows of a record in each table, those with rows first; and which tables cannot be read, and why."""
    traces, unread = [], {}
    for watch in watches:
        try:
            traces.append(trace_record(watch, topic, partition, offset))
        except (OffsetStoreError, OSError, ValueError) as error:
            unread[watch.name] = str(error)
    return sorted(traces, key=lambda each: not each.proofs), unread


def _verdict_of(watch: TableWatch) -> Verdict | None:
    """Return what the audit has last said: with another verdict, what was proven is looked at again."""
    known = watch.followed.known
    return None if known is None else known.verdict


def _conditions(asked: PageRequest) -> list[Condition]:
    found = []
    for number in range(1, CONDITIONS + 1):
        column, operator = asked.query.get(f"column{number}", ""), asked.query.get(f"is{number}", "=")
        if column:
            found.append(Condition(column, operator, asked.query.get(f"value{number}", "")))
    return found


def _columns(watch: TableWatch) -> list[str]:
    with watch.followed.lock:
        return [field.name for field in watch.followed.reading().log.table.schema().fields]


TRACE = Page("/trace", "Trace", "trace.html", _data, menu="Trace", interval_s=1.0)

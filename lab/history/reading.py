"""Read a history: lines of JSON become typed events, or an error that names file and line.

Theory of operation: every line must be understood. A checker that ignores what it cannot read finds nothing, so an
event of unknown name or a field of the wrong kind is an error. The one exception is an incomplete last line: a
client killed during a write leaves it, and it is skipped.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from lab.history.events import (
    AssignmentChanged,
    End,
    EndReached,
    Event,
    HistoryError,
    Isolation,
    Outcome,
    Partition,
    PartitionOffset,
    RecordRead,
    RecordsConsumed,
    Remark,
    ResetPolicy,
    ResultEnd,
    ResultRow,
    Seek,
    SendFailed,
    SendStarted,
    SendSucceeded,
    Startup,
    TransactionStep,
    Where,
)

_Choice = TypeVar("_Choice", bound=StrEnum)


def read_history(paths: Iterable[str | Path]) -> list[Event]:
    """Read files of events, one after the other.

    Raises:
        HistoryError: for a file that cannot be read, or a line that is not an event.
    """
    return [event for path in paths for event in _read_file(Path(path))]


def events_of(objects: Iterable[Mapping[str, Any]]) -> list[Event]:
    """Make events from objects, as in a file.

    Raises:
        HistoryError: for an object that is not an event.
    """
    return [event_of(fields, Where("history", number)) for number, fields in enumerate(objects, start=1)]


def event_of(fields: Mapping[str, Any], where: Where) -> Event:
    """Make one event.

    Raises:
        HistoryError: if its name is unknown, or a field is missing or of the wrong kind.
    """
    read = _Fields(fields, where)
    name = read.text("name")
    make = _EVENTS.get(name)
    if make is None:
        nearest = difflib.get_close_matches(name, _EVENTS, n=1, cutoff=0.0)[0]
        raise HistoryError(f"{where}: unknown event {name!r}; the nearest known one is {nearest!r}")
    client = read.text("client") if "client" in fields else where.file
    return make(read, {"name": name, "where": where, "client": client})


def _read_file(path: Path) -> Iterator[Event]:
    try:
        text = path.read_bytes().decode()
    except OSError as error:
        raise HistoryError(f"{path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise HistoryError(f"{path} is not UTF-8: {error}") from error
    *lines, rest = text.split("\n")
    for number, line in enumerate([*lines, rest], start=1):
        if not line.strip():
            continue
        where = Where(str(path), number)
        try:
            fields = json.loads(line)
        except ValueError as error:
            if number > len(lines):
                return  # cut off during a write
            raise HistoryError(f"{where}: not JSON: {error}") from error
        if not isinstance(fields, dict):
            raise HistoryError(f"{where}: expected an object, and found {line[:60]!r}")
        yield event_of(fields, where)


class _Fields:
    """The fields of one line, with errors that name it."""

    def __init__(self, fields: Mapping[str, Any], where: Where) -> None:
        self._fields = fields
        self._where = where

    def text(self, name: str) -> str:
        value = self._fields.get(name)
        if not isinstance(value, str):
            raise self._error(name, "text", value)
        return value

    def text_or_none(self, name: str) -> str | None:
        value = self._fields.get(name)
        if value is not None and not isinstance(value, str):
            raise self._error(name, "text or null", value)
        return value

    def number(self, name: str, default: int | None = None) -> int:
        value = self._fields.get(name, default)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self._error(name, "a whole number", value)
        return value

    def has(self, name: str) -> bool:
        return name in self._fields

    def transaction(self) -> int | None:
        return None if self._fields.get("transaction") is None else self.number("transaction")

    def flag(self, name: str) -> bool:
        value = self._fields.get(name, False)
        if not isinstance(value, bool):
            raise self._error(name, "true or false", value)
        return value

    def choice(self, name: str, kind: type[_Choice], default: _Choice) -> _Choice:
        value = self._fields.get(name, default)
        try:
            return kind(value)
        except ValueError:
            raise self._error(name, " or ".join(kind), value) from None

    def place(self) -> PartitionOffset:
        return PartitionOffset(self.text("topic"), self.number("partition"), self.number("offset"))

    def partitions(self) -> Iterator[_Fields]:
        value = self._fields.get("partitions")
        if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
            raise self._error("partitions", "a list of objects", value)
        return (_Fields(each, self._where) for each in value)

    def ends(self) -> tuple[End, ...]:
        return tuple(
            End(
                Partition(each.text("topic"), each.number("partition")),
                each.number("offset"),
                each.number("start_offset", 0),
            )
            for each in self.partitions()
        )

    def _error(self, name: str, wanted: str, value: object) -> HistoryError:
        return HistoryError(f"{self._where}: field {name!r} must be {wanted}, and is {value!r}")


_Common = dict[str, Any]


def _startup(read: _Fields, common: _Common) -> Event:
    # Kafka's consumers read uncommitted by default; its VerifiableConsumer begins at the earliest.
    isolation = read.choice("isolation_level", Isolation, Isolation.READ_UNCOMMITTED)
    return Startup(
        isolation=isolation, reset_policy=read.choice("reset_policy", ResetPolicy, ResetPolicy.EARLIEST), **common
    )


def _send_started(read: _Fields, common: _Common) -> Event:
    return SendStarted(
        topic=read.text("topic"), value=read.text_or_none("value"), transaction=read.transaction(), **common
    )


def _send_succeeded(read: _Fields, common: _Common) -> Event:
    return SendSucceeded(place=read.place(), value=read.text_or_none("value"), transaction=read.transaction(), **common)


def _send_failed(read: _Fields, common: _Common) -> Event:
    # Kafka's tool does not say which; a timeout is the usual error, and its outcome is unknown.
    return SendFailed(
        topic=read.text("topic"),
        value=read.text_or_none("value"),
        transaction=read.transaction(),
        outcome=read.choice("outcome", Outcome, Outcome.UNKNOWN),
        **common,
    )


def _transaction_step(read: _Fields, common: _Common) -> Event:
    outcome = read.choice("outcome", Outcome, Outcome.SUCCESS)
    return TransactionStep(transaction=read.number("transaction"), outcome=outcome, **common)


def _assignment_changed(read: _Fields, common: _Common) -> Event:
    partitions = tuple(
        (Partition(each.text("topic"), each.number("partition")), each.number("offset") if each.has("offset") else None)
        for each in read.partitions()
    )
    return AssignmentChanged(partitions=partitions, **common)


def _result_row(read: _Fields, common: _Common) -> Event:
    place = read.place() if read.has("offset") else None
    return ResultRow(topic=read.text("topic"), value=read.text_or_none("value"), place=place, **common)


_EVENTS: dict[str, Callable[[_Fields, _Common], Event]] = {
    "startup_complete": _startup,
    "producer_send_started": _send_started,
    "producer_send_success": _send_succeeded,
    "producer_send_error": _send_failed,
    "transaction_begin": _transaction_step,
    "transaction_commit_started": _transaction_step,
    "transaction_commit": _transaction_step,
    "transaction_abort": _transaction_step,
    "partitions_assigned": _assignment_changed,
    "partitions_revoked": _assignment_changed,
    "seek": lambda read, common: Seek(place=read.place(), **common),
    "record_data": lambda read, common: RecordRead(place=read.place(), value=read.text_or_none("value"), **common),
    "records_consumed": lambda read, common: RecordsConsumed(count=read.number("count"), **common),
    "end_reached": lambda read, common: EndReached(ends=read.ends(), final=read.flag("final"), **common),
    "result_row": _result_row,
    "result_end": lambda read, common: ResultEnd(ends=read.ends(), **common),
    **dict.fromkeys(
        ("shutdown_requested", "shutdown_complete", "tool_data", "offsets_committed", "client_error"),
        lambda _, common: Remark(**common),
    ),
}

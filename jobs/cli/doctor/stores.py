"""Checks of a table and a checkpoint: reachable, readable, writable, and accepted by the sink."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator, Mapping

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyarrow import fs

from sparkonce.connectors.delta_sink.features import TableFacts, are_for_spark, refusals
from sparkonce.connectors.delta_sink.table import BY_WRITE_STREAM
from sparkonce.exactly_once.checkpoint import Checkpoint
from sparkonce.exactly_once.errors import CheckpointError
from sparkonce.jobs.cli.doctor.findings import SKEW_S, Finding, warning, wrong
from sparkonce.jobs.cli.doctor.table_growth import growth
from sparkonce.offset_store.errors import OffsetStoreError, plain
from sparkonce.offset_store.locations import Location
from sparkonce.offset_store.log.table_log import TableLog
from sparkonce.offset_store.secrets import without_secrets
from sparkonce.offset_store.store_hints import store_hint_or_options
from sparkonce.offset_store.tables import check_keeps_transaction_ids

PROBE = ".sparkonce-doctor-"
_LONGEST = 500
_ADDRESS = "Check the address and the credentials"
_ANOTHER = "Name another place, or move what is there"
_REFUSED = "delta_once cannot write to it. Use sparkonce.AppendWriter (docs/upserts.md), or another table"
_RIGHTS = "Give this user the right to write there"


def table(location: Location, storage: Mapping[str, str]) -> Iterator[Finding]:
    """Check a Delta table, or the location of a new one."""
    if location.is_file:
        yield wrong("table", f"{location} is a file, not a folder", _ANOTHER)
        return
    try:
        filesystem, root = location.filesystem(storage)
        log = filesystem.get_file_info(_join(root, "_delta_log"))
        if DeltaTable.is_deltatable(location.text, dict(storage)):
            yield from _delta(location, storage)
        elif log.type is fs.FileType.File:
            yield wrong("table", f"{location}/_delta_log is a file", _ANOTHER)
        else:
            yield Finding("table", f"none at {location} yet; the first query creates it")
        yield from _writable("table", location, storage)
    except (OSError, ValueError, DeltaError, OffsetStoreError) as error:
        yield wrong("table", _told(location, storage, str(location), error), _remedy(location, _ADDRESS))


def _delta(location: Location, storage: Mapping[str, str]) -> Iterator[Finding]:
    log = TableLog(location, storage)
    found = log.state()
    check_keeps_transaction_ids(location, found.metadata.configuration)
    facts = TableFacts.of(found)
    problems = refusals(facts)
    text = f"{location}, version {found.version}"
    if problems:
        for_spark = are_for_spark(facts, problems)
        remedy = f"In place of a plain writeStream, {BY_WRITE_STREAM}" if for_spark else _REFUSED
        yield wrong("table", f"{text}: {'; '.join(problems)}", remedy)
    else:
        yield Finding("table", text)
    yield from growth(log.reader, found)


def checkpoint(location: Location, storage: Mapping[str, str]) -> Iterator[Finding]:
    """Check a checkpoint, or the location of a new one."""
    if location.is_file:
        yield wrong("checkpoint", f"{location} is a file, not a folder", _ANOTHER)
        return
    try:
        filesystem, root = location.filesystem(storage)
        if filesystem.get_file_info(_join(root, "metadata")).type is fs.FileType.NotFound:
            yield Finding("checkpoint", f"none at {location} yet; the first query creates it")
        else:
            opened = Checkpoint.open(location.text, storage)
            yield _batches(opened, opened.query_id())
        yield from _writable("checkpoint", location, storage)
    except (OSError, ValueError, CheckpointError) as error:
        yield wrong("checkpoint", _told(location, storage, str(location), error), _remedy(location, _ADDRESS))


def _batches(opened: Checkpoint, query_id: str) -> Finding:
    numbers = sorted(int(info.base_name) for info in opened.entries("offsets") if info.base_name.isdecimal())
    text = f"{opened.location}, query {query_id}"
    if not numbers:
        return Finding("checkpoint", f"{text}, no batch yet")
    finished = {info.base_name for info in opened.entries("commits")}
    opened.logged(numbers[-1])
    unfinished = "" if str(numbers[-1]) in finished else ", which is not finished"
    return Finding("checkpoint", f"{text}, last batch {numbers[-1]}{unfinished}")


def _writable(what: str, location: Location, storage: Mapping[str, str]) -> Iterator[Finding]:
    """Write a small file of a unique name, read its time, and delete it."""
    filesystem, folder = location.filesystem(storage)
    if location.is_local:  # the check creates nothing else, not even the table's folder
        while not os.path.lexists(folder):
            folder = os.path.dirname(folder)
        if not os.path.isdir(folder):
            yield wrong(what, f"{folder} is not a folder", _ANOTHER)
            return
    elif not location.in_object_store and filesystem.get_file_info(folder).type is not fs.FileType.Directory:
        return  # HDFS would create the folder
    place = folder or location.text
    probe = _join(folder, f"{PROBE}{uuid.uuid4()}")
    failure: OSError | None = None
    written = None
    try:
        with filesystem.open_output_stream(probe, buffer_size=1024) as stream:  # delta-rs's accepts no memoryview
            stream.write(b"sparkonce doctor")
        written = filesystem.get_file_info(probe).mtime_ns
    except OSError as error:
        failure = error
    try:
        if filesystem.get_file_info(probe).type is not fs.FileType.NotFound:  # a failed write may leave an empty one
            filesystem.delete_file(probe)
    except OSError as error:
        told = _told(location, storage, f"{probe} was written, cannot be deleted, and is left", error)
        yield wrong(what, told, "Give this user the right to delete there, which checkpoints need, and delete it")
        return
    if failure is not None:
        told = _told(location, storage, f"{place} cannot be written to", failure)
        yield wrong(what, told, _remedy(location, _RIGHTS))
        return
    ahead_s = (written or time.time_ns()) / 1e9 - time.time()
    if abs(ahead_s) > SKEW_S:
        skew = f"{abs(ahead_s):.0f} s {'ahead of' if ahead_s > 0 else 'behind'} this machine's"
        yield warning(what, f"{place} can be written to; its clock is {skew}", "Synchronise both clocks (NTP)")
        return
    yield Finding(what, f"{place} can be written to")


def _told(location: Location, storage: Mapping[str, str], what: str, error: BaseException) -> str:
    """Shorten a store's error to one line, without colours and secrets."""
    text = without_secrets(" ".join(plain(error).split()), storage)  # before it is cut, perhaps within a secret
    hint = store_hint_or_options(location, text)
    return f"{without_secrets(what, storage)}: {text[:_LONGEST]}{'…' * (len(text) > _LONGEST)}{hint}"


def _remedy(location: Location, otherwise: str) -> str:
    """Return the remedy, unless `_told` includes it because it is a store's error."""
    return "" if location.in_object_store else otherwise


def _join(root: str, name: str) -> str:
    return f"{root}/{name}" if root else name

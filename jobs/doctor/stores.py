"""A table and a checkpoint: reachable, readable, writable, and such as the sink takes."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator, Mapping

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyarrow import fs

from sparkonce.connectors.delta_once.features import TableFacts, refusals
from sparkonce.exactly_once.checkpoint import Checkpoint
from sparkonce.exactly_once.errors import CheckpointError
from sparkonce.jobs.doctor.findings import Finding, State, unsure, wrong
from sparkonce.jobs.housekeeping.arguments import show_time
from sparkonce.offset_store.errors import OffsetStoreError
from sparkonce.offset_store.locations import Location
from sparkonce.offset_store.secrets import without_secrets

_SKEW_S = 5.0
_STORES = "Check the address and the options storage.* (--storage of this command)"


def table(location: Location, storage: Mapping[str, str]) -> Iterator[Finding]:
    """Look at a Delta table, or at the place where one will be made."""
    try:
        filesystem, root = location.filesystem(storage)
        there = filesystem.get_file_info(_join(root, "_delta_log")).type is fs.FileType.Directory
        if there or location.in_object_store:
            there = DeltaTable.is_deltatable(location.text, dict(storage))
        if there:
            yield _delta(location, storage)
        else:
            yield Finding("table", f"none at {location} yet; the first query makes it")
        yield from _writable("table", filesystem, root)
    except (OSError, ValueError, DeltaError, OffsetStoreError) as error:
        yield wrong("table", without_secrets(f"{location}: {error}", storage), _STORES)


def _delta(location: Location, storage: Mapping[str, str]) -> Finding:
    found = DeltaTable(location.text, storage_options=dict(storage))
    problems = refusals(TableFacts.of(found))
    text = f"{location}, version {found.version()}"
    if problems:
        return wrong("table", f"{text}: {'; '.join(problems)}", "delta_once does not write to it: docs/delta_once.md")
    return Finding("table", text)


def checkpoint(location: Location, storage: Mapping[str, str]) -> Iterator[Finding]:
    """Look at a checkpoint, or at the place where one will be made."""
    try:
        filesystem, root = location.filesystem(storage)
        if filesystem.get_file_info(_join(root, "metadata")).type is fs.FileType.NotFound:
            yield Finding("checkpoint", f"none at {location} yet; the first query makes it")
        else:
            opened = Checkpoint.open(location.text, storage)
            yield _batches(opened, opened.query_id())
        yield from _writable("checkpoint", filesystem, root)
    except (OSError, ValueError, CheckpointError) as error:
        yield wrong("checkpoint", without_secrets(f"{location}: {error}", storage), _STORES)


def _batches(opened: Checkpoint, query_id: str) -> Finding:
    numbers = sorted(int(info.base_name) for info in opened.entries("offsets") if info.base_name.isdecimal())
    text = f"{opened.location}, query {query_id}"
    if not numbers:
        return Finding("checkpoint", f"{text}, no batch yet")
    finished = {info.base_name for info in opened.entries("commits")}
    opened.logged(numbers[-1])
    unfinished = "" if str(numbers[-1]) in finished else ", which is not finished"
    return Finding("checkpoint", f"{text}, last batch {numbers[-1]}{unfinished}")


def _writable(what: str, filesystem: fs.FileSystem, root: str) -> Iterator[Finding]:
    """Write a small file of a name that nobody has, look at its time, and remove it."""
    folder = root
    if isinstance(filesystem, fs.LocalFileSystem):  # nothing is created for this: not even the table's folder
        while not os.path.lexists(folder):
            folder = os.path.dirname(folder)
        if not os.path.isdir(folder):
            yield wrong(what, f"{folder} is not a folder", "Name another place, or move what is there")
            return
    probe = _join(folder, f".sparkonce-doctor-{uuid.uuid4()}")
    try:
        with filesystem.open_output_stream(probe) as stream:
            stream.write(b"sparkonce doctor")
        written = filesystem.get_file_info(probe).mtime_ns
        filesystem.delete_file(probe)
    except (OSError, pa.ArrowException) as error:
        yield wrong(what, f"{folder or root} cannot be written to ({error})", "Give this user the right to write there")
        return
    ahead_s = (written or time.time_ns()) / 1e9 - time.time()
    if abs(ahead_s) > _SKEW_S:
        yield unsure(
            what,
            f"{folder or root} can be written to; its clock says {show_time((written or 0) // 1_000_000)}, "
            f"{abs(ahead_s):.0f} s {'ahead of' if ahead_s > 0 else 'behind'} this machine",
            "Let both follow a time server: clean and VACUUM go by the times of files",
        )
        return
    yield Finding(what, f"{folder or 'the store'} can be written to", State.OK)


def _join(root: str, name: str) -> str:
    return f"{root}/{name}" if root else name

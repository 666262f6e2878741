"""The page of a table's stored offsets: it runs `sparkonce offsets` to show and change them."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from sparkonce.jobs.ui.delta.tables import TableWatch
from sparkonce.jobs.ui.page import Page, PageRequest, Proposal, RefusedError
from sparkonce.jobs.ui.pages.forms import NOT_ALLOWED
from sparkonce.jobs.ui.pages.tables import table_of
from sparkonce.jobs.ui.site import Site
from sparkonce.offset_store.administration import OffsetsTable

TIME_LIMIT_S = 60.0
_at_once = threading.Semaphore(2)
"""A command is a process, with all that it imports."""
_NUMBER = re.compile(r"[0-9]{1,19}")


def _data(site: Site, asked: PageRequest) -> Mapping[str, Any]:
    watch = table_of(site, asked.path["table"])
    stored = _opened(watch).stored()
    return {"watch": watch, "version": stored.version, "offsets": sorted(stored.offsets.items())}


def _opened(watch: TableWatch) -> OffsetsTable:
    return OffsetsTable.open(watch.followed.location, watch.followed.storage_options)


def _plan(site: Site, asked: PageRequest, form: Mapping[str, str]) -> str | Proposal:
    watch = table_of(site, asked.path["table"])
    said = _run(watch, _words(watch, form))
    version = re.search(r"--apply --if-version ([0-9]+)$", said.strip())
    if version is None:
        return said
    if not site.given.allow_changes:
        return f"{said}{NOT_ALLOWED}"
    return Proposal(said, "move", {**form, "version": version[1]}, "Move it")


def _move(site: Site, asked: PageRequest, form: Mapping[str, str]) -> str:
    if not site.given.allow_changes:
        raise RefusedError(NOT_ALLOWED)
    watch = table_of(site, asked.path["table"])
    return _run(watch, [*_words(watch, form), "--apply", f"--if-version={_number(form, 'version')}"])


def _words(watch: TableWatch, form: Mapping[str, str]) -> list[str]:
    """Return the command's arguments; values are joined to their options, so that none is parsed as an option."""
    key = next((key for key in _opened(watch).stored().offsets if form.get("key") == repr(key)), None)
    if key is None:
        raise RefusedError("That offset is not stored here any more: look again.")
    if form.get("to") == "version":
        return ["rewind", f"--app-id={key.app_id}", f"--to-version={_number(form, 'at')}"]
    tp = key.partition
    where = [f"--app-id={key.app_id}", f"--source={key.source}", f"--topic={tp.topic}", f"--partition={tp.partition}"]
    return ["set", *where, *([f"--topic-id={tp.topic_id}"] if tp.topic_id else []), f"--offset={_number(form, 'at')}"]


def _number(form: Mapping[str, str], name: str) -> str:
    text = form.get(name, "").strip()
    if not _NUMBER.fullmatch(text):
        raise RefusedError("Write a whole number: the offset to read next, or the version to go back to.")
    return text


def _run(watch: TableWatch, words: Sequence[str]) -> str:
    """Run `sparkonce offsets`, and return its output.

    Raises:
        RefusedError: it fails; the message is its own.
    """
    storage = [f"--storage={name}={value}" for name, value in watch.followed.storage_options.items()]
    action, *options = words
    command = [
        sys.executable,
        "-P",  # no module of the current folder
        "-m",
        "sparkonce.jobs.cli.main",
        "offsets",
        action,
        *options,
        *storage,
        "--",
        watch.place,
    ]
    try:
        with _at_once:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=TIME_LIMIT_S, stdin=subprocess.DEVNULL
            )
    except subprocess.TimeoutExpired:
        late = f"sparkonce offsets {action} took more than {TIME_LIMIT_S:.0f} s, and was ended"
        raise RefusedError(f"{late}; look at the offsets again before you repeat it.") from None
    if done.returncode:
        raise RefusedError(done.stderr.strip() or f"sparkonce offsets {action} ended with status {done.returncode}.")
    return done.stdout


STORED = Page(
    "/tables/{table}/offsets",
    "Offsets",
    "stored.html",
    _data,
    actions={"plan": _plan, "move": _move},
    interval_s=1.0,
)

"""Arguments that the commands share, and how their values are parsed and printed.

Among them the working folder of a command: one that its user names and keeps, or one that is deleted at the end;
and the files of its results: they are checked as far as possible before the work begins.
"""

from __future__ import annotations

import argparse
import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sparkonce.offset_store.locations import Location

CONF = Path(__file__).parents[1] / "conf"
"""The folder `conf` at the top of a checkout, linked and installed here."""
_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class UsageError(ValueError):
    """Options that exclude each other, or that name an unusable file; the message says what to give."""


def add_table(parser: argparse.ArgumentParser) -> None:
    """Add the table, and the settings to reach it."""
    parser.add_argument("table", metavar="TABLE", type=table, help="path or URI of the Delta table; delta:PATH too")
    add_storage(parser)


def add_storage(parser: argparse.ArgumentParser) -> None:
    """Add the settings of a table's store."""
    parser.add_argument(
        "--storage",
        metavar="KEY=VALUE",
        type=key_value,
        action="append",
        default=[],
        help="a storage option of delta-rs, such as AWS_REGION=eu-west-1 (keys are better left to the environment)",
    )


def add_kafka(parser: argparse.ArgumentParser, purpose: str) -> None:
    """Add a client's settings to reach the brokers; ``purpose`` is used in the help."""
    parser.add_argument("--bootstrap-servers", metavar="HOST:PORT,…", help=purpose)
    parser.add_argument(
        "--command-config", metavar="FILE", help="a properties file of kafka.* settings, as the source takes them"
    )
    parser.add_argument(
        "--kafka",
        metavar="NAME=VALUE",
        type=key_value,
        action="append",
        default=[],
        help="one such setting, such as security.protocol=SSL; repeatable",
    )


def table(text: str) -> Location:
    """Parse a table's location."""
    from sparkonce.offset_store.locations import Location

    if text.startswith("group:"):
        raise argparse.ArgumentTypeError(
            f"{text} is a consumer group: look at it and move its offsets with Kafka's own kafka-consumer-groups.sh"
        )
    try:
        return Location.parse(text.removeprefix("delta:"))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def key_value(text: str) -> tuple[str, str]:
    """Read ``KEY=VALUE``."""
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise argparse.ArgumentTypeError("expected KEY=VALUE (what was given is not shown: it may hold a secret)")
    return key, value


MAX_LONG = 2**63 - 1


def whole_number(text: str) -> int:
    """Parse a whole number, zero or above, that fits into 64 bits, as offsets and versions do."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number, zero or above")
    if int(text) > MAX_LONG:
        raise argparse.ArgumentTypeError(f"{text} is too large: {MAX_LONG} is the largest number of 64 bits")
    return int(text)


def positive(text: str) -> int:
    """Read a whole number above zero."""
    number = whole_number(text)
    if number == 0:
        raise argparse.ArgumentTypeError("expected a whole number above zero")
    return number


def duration_s(text: str) -> int:
    """Read ``90s``, ``30m``, ``12h`` or ``7d`` as seconds."""
    found = re.fullmatch(r"(\d+)([smhd])", text.strip())
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration such as 90s, 30m, 12h or 7d")
    return int(found[1]) * _UNITS_S[found[2]]


def timestamp_ms(text: str) -> int:
    """Read an ISO date or time as milliseconds since 1970; without a zone it is UTC."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not an ISO time such as 2026-01-31T12:00:00Z") from error
    return int((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000)


def show_time(ms: int) -> str:
    """Write a time of a commit."""
    if not ms:
        return "time unknown"
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def show_bytes(count: float) -> str:
    """Format a size in a suitable unit."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def show_columns(rows: Sequence[Sequence[object]], indent: str = "  ") -> str:
    """Write rows as columns of equal width."""
    texts = [[str(cell) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in texts) for column in range(len(texts[0]))]
    return "\n".join(
        (indent + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))).rstrip()
        for row in texts
    )


def empty_folder(text: str) -> Path:
    """Parse an option that names a folder to keep, which must be empty, or not exist yet.

    Raises:
        argparse.ArgumentTypeError: if it contains anything, or is a file: foreign files must not be mixed with ours.
    """
    folder = Path(text)
    if folder.exists() and not folder.is_dir():
        raise argparse.ArgumentTypeError(f"{text} is not a folder: name another")
    if folder.is_dir() and any(folder.iterdir()):
        raise argparse.ArgumentTypeError(f"{text} is not empty: name another")
    return folder


def result_file(text: str) -> Path:
    """Parse an option that names a file to write at the end, and check now whether that is possible.

    Raises:
        argparse.ArgumentTypeError: if its folder is missing, it is a folder itself, or it may not be written.
    """
    path = Path(text)
    if path.is_dir():
        raise argparse.ArgumentTypeError(f"{text} is a folder: name a file in it")
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"the folder {path.parent} does not exist: make it first, or name another")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise argparse.ArgumentTypeError(f"{text} may not be written: name another place")
    return path


@contextmanager
def working_folder(kept: Path | None, prefix: str) -> Iterator[Path]:
    """Yield the absolute path of ``kept``, made if missing, or of a temporary folder whose name has ``prefix``."""
    if kept is not None:
        kept.mkdir(parents=True, exist_ok=True)
        yield kept.resolve()
        return
    with tempfile.TemporaryDirectory(prefix=prefix) as folder:
        yield Path(folder)

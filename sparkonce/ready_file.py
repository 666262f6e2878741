"""`--ready-file`: a file with a server's address, for as long as it answers there."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator


class ReadyFileError(OSError):
    """The file cannot be written."""


@contextlib.contextmanager
def ready_file(path: str | None, *, private: bool = False) -> Iterator[Callable[[str], None]]:
    """Yield a function that writes the address to the file atomically; without a path it does nothing.

    The file is removed first, as it may have the address of an earlier start, and at the end, unless another wrote it.

    Args:
        path: the file.
        private: whether only this user may read it, as the address contains a token.

    Raises:
        ReadyFileError: if the file cannot be removed or, from the function, written.
    """
    if path is None:
        yield lambda _: None
        return
    written: list[str] = []

    def write(address: str) -> None:
        with _named(path):
            _write(path, address, 0o600 if private else 0o666)
        written.append(address)

    with _named(path):
        _remove(path)
    try:
        yield write
    finally:
        with contextlib.suppress(OSError, UnicodeDecodeError):
            if written == [_content(path)]:
                _remove(path)


@contextlib.contextmanager
def _named(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ReadyFileError(f"--ready-file {path} cannot be written: {error}") from error


def _write(path: str, address: str, mode: int) -> None:
    beside = f"{path}.{os.urandom(8).hex()}.tmp"  # a unique name
    try:
        with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w", encoding="utf-8") as file:
            file.write(address)
        os.replace(beside, path)
    except OSError:
        _remove(beside)
        raise


def _content(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()


def _remove(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)

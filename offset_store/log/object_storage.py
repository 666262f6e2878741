"""A log in an object store, through obstore: S3 and its likes, Google Cloud Storage, Azure.

One client, with its connections, serves a location and its options in a process. obstore's threads do not survive a
fork, and nothing can start them again: in a process forked from one that has used obstore, every call is refused
instead of waiting for ever.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from operator import itemgetter
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)

from sparkonce.offset_store.log.object_options import StoreOptions
from sparkonce.offset_store.log.storage import LOG_FOLDER, Tag

if TYPE_CHECKING:
    from obstore import ObjectMeta
    from obstore.store import ObjectStore

CLIENTS = 256
"""The most clients that a process keeps."""
PAGE = 1000
"""Names in one answer of a store."""
_LAST = "\U0010ffff"
"""Sorts after every other character."""
_DEBUG = "\n\nDebug source:\n"
"""After it, obstore writes the error as Rust has it, over many lines."""
_PANIC = "PanicException"
"""The class of a panic in Rust, which is no Exception, and which each library has for itself."""
_CONFLICT = re.compile(r"\b409 Conflict")
_FORBIDDEN = re.compile(r"status code: 40[13] ")
_NOT_IMPLEMENTED = re.compile(r"\b501 Not Implemented|<Code>NotImplemented<")
_CAUSES = (
    (re.compile(r"BadScheme"), "URL scheme is not allowed"),
    (re.compile(r"\bConnect,"), "client error (Connect)"),
    (re.compile(r'"((?:dns|tcp \w+) error)"'), r"\1"),
    (re.compile(r'(?:message|error): "([^"]*)"'), r"\1"),
    (re.compile(r"IncompleteMessage"), "connection closed before message completed"),
    (re.compile(r"TimedOut|kind: Timeout"), "operation timed out"),
)
"""The causes of an error in a request, which obstore names there only; in delta-rs's words."""
ONE_WRITER = "storage.AWS_CONDITIONAL_PUT=disabled and storage.AWS_S3_ALLOW_UNSAFE_RENAME=true"
WAY_OUT = (
    "Two writers could replace each other's commits. Use a store that has conditional writes (If-None-Match); only if "
    f"this table has one writer, ever, set {ONE_WRITER}"
)
_runtime_of: int | None = None
"""The process whose threads serve obstore."""


@dataclass(frozen=True, slots=True)
class ObjectStorage:
    """The folder ``_delta_log`` of one table; see `LogStorage`."""

    store: ObjectStore
    address: str
    in_s3: bool
    one_writer: bool = False
    """Whether files are put without a condition, because the user says that nobody else writes."""
    refusal: str = ""
    """Why no file may be put; "" if one may."""

    @classmethod
    def of(cls, options: StoreOptions, *, one_writer: bool = False, refusal: str = "") -> ObjectStorage:
        """Open the log of the table at the options' address. Raises OSError for options that have no such value."""
        with _our_errors():
            store = _client(options)
        return cls(store, options.url, options.in_s3, one_writer, refusal)

    @property
    def is_local(self) -> bool:
        """See `LogStorage`."""
        return False

    def prepare(self) -> None:
        """See `LogStorage.prepare`: there are no folders."""

    def names(self, after: str = "") -> list[str]:
        """See `LogStorage.names`."""
        return sorted(name for name, _ in self._files(after=after) if name > after)

    def modified(self, folder: str = "") -> Iterator[tuple[str, int]]:
        """See `LogStorage.modified`."""
        files = self._files(folder)
        for name, found in sorted(files, key=itemgetter(0)) if self._is_unordered else files:
            yield name, int(found["last_modified"].timestamp() * 1000)

    def _files(self, folder: str = "", after: str = "") -> Iterator[tuple[str, ObjectMeta]]:
        """Yield the files of a folder, in the order in which the store lists them.

        obstore lists folders with all that is below them. Where a page ends within a folder below, such as that of
        sidecars, the listing goes on behind it: else thousands of sidecars would be listed to find one commit.
        """
        root, passed = _path(folder).rstrip("/"), set[str]()
        start: str | None = after
        while start is not None:
            pages, start = self._pages(root, start), None
            for page in pages:
                names = [meta["path"].removeprefix(f"{root}/") for meta in page]
                yield from ((name, meta) for name, meta in zip(names, page, strict=True) if "/" not in name)
                below, is_below, _ = names[-1].partition("/")
                if is_below and len(page) == PAGE and below not in passed and not self._is_unordered:
                    passed.add(below)
                    start = f"{below}/{_LAST}"
                    break

    def _pages(self, root: str, after: str) -> Iterator[Sequence[ObjectMeta]]:
        with _our_errors():
            pages = obstore.list(self.store, root, offset=f"{root}/{after}" if after else None, chunk_size=PAGE)
        while True:
            with _our_errors():
                page = next(pages, None)
            if page is None:
                return
            yield page

    @property
    def _is_unordered(self) -> bool:
        """Whether this is a directory bucket of S3, whose listings have no order."""
        return self.address.split("/")[2].endswith("--x-s3")

    def read(self, name: str) -> bytes:
        """See `LogStorage.read`."""
        with _our_errors():
            return bytes(obstore.get(self.store, _path(name)).bytes())

    def open(self, name: str) -> BinaryIO:
        """See `LogStorage.open`."""
        with _our_errors():
            size = obstore.head(self.store, _path(name))["size"]
        return cast(BinaryIO, _ObjectFile(self.store, _path(name), size))

    def tag(self, name: str) -> Tag | None:
        """See `LogStorage.tag`: the ETag, or, of a store that has none, size and time."""
        try:
            with _our_errors():
                found = obstore.head(self.store, _path(name))
        except FileNotFoundError:
            return None
        etag = found["e_tag"]
        return (etag,) if etag else (found["size"], found["last_modified"])

    def put_if_absent(self, name: str, data: bytes) -> bool:
        """See `LogStorage.put_if_absent`.

        A request whose answer was lost is repeated, and the store then answers that the file is there. So False may
        mean our own file: compare what it holds.

        Raises:
            OSError: as there, and if the store has no conditional writes, with what to do.
        """
        if self.refusal:
            raise OSError(self.refusal)
        if self.one_writer:
            if self.tag(name) is not None:
                return False
            self.put(name, data)
            return True
        try:
            with _our_errors():
                obstore.put(self.store, _path(name), data, mode="create", use_multipart=False)
        except FileExistsError as error:
            if self.in_s3 and _CONFLICT.search(str(error)):  # S3: another request is under way, which may yet fail
                raise OSError(str(error)) from error
            return False
        except OSError as error:
            if _NOT_IMPLEMENTED.search(str(error)):
                raise OSError(f"the store of {self.address} has no conditional writes ({error}). {WAY_OUT}") from error
            raise
        return True

    def put(self, name: str, data: bytes) -> None:
        """See `LogStorage.put`."""
        with _our_errors():
            obstore.put(self.store, _path(name), data)

    def delete(self, name: str) -> None:
        """See `LogStorage.delete`."""
        try:
            with _our_errors():
                obstore.delete(self.store, _path(name))
        except FileNotFoundError:
            return


class _ObjectFile(io.RawIOBase):
    """One object, of which parts are read: each read is a request."""

    def __init__(self, store: ObjectStore, path: str, size: int) -> None:
        self._store, self._path, self._size, self._at = store, path, size, 0

    def readable(self) -> bool:
        """See `io.IOBase`."""
        return True

    def seekable(self) -> bool:
        """See `io.IOBase`."""
        return True

    def tell(self) -> int:
        """See `io.IOBase`."""
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """See `io.IOBase`."""
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        return self._at

    def read(self, size: int | None = -1, /) -> bytes:
        """See `io.RawIOBase`; returns all that was asked for, to the end of the file."""
        left = max(self._size - self._at, 0)
        length = left if size is None or size < 0 else min(size, left)
        if not length:
            return b""
        with _our_errors():
            data = bytes(obstore.get_range(self._store, self._path, start=self._at, length=length))
        self._at += len(data)
        return data

    def readall(self) -> bytes:
        """See `io.RawIOBase`."""
        return self.read()

    def readinto(self, buffer: Any, /) -> int:
        """See `io.RawIOBase`."""
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


def _path(name: str) -> str:
    return f"{LOG_FOLDER}/{name}"


@lru_cache(CLIENTS)
def _client(options: StoreOptions) -> ObjectStore:
    return options.open()


@contextmanager
def _our_errors() -> Iterator[None]:
    """Raise errors of obstore as those of files: FileNotFoundError, FileExistsError, PermissionError, OSError.

    Their causes are left out: obstore's own text quotes the request and the answer over many lines.
    """
    _check_not_forked()
    try:
        yield
    except FileNotFoundError as error:
        raise FileNotFoundError(_text(error)) from None
    except (AlreadyExistsError, PreconditionError) as error:
        raise FileExistsError(_text(error)) from None
    except (PermissionDeniedError, UnauthenticatedError) as error:
        raise PermissionError(_text(error)) from None
    except (BaseError, ValueError, NotImplementedError) as error:
        kind = PermissionError if _FORBIDDEN.search(str(error)) else OSError  # of a listing, obstore does not say
        raise kind(_text(error)) from None
    except BaseException as error:
        if type(error).__name__ != _PANIC:
            raise
        raise OSError(f"obstore failed: {error}") from None


def _check_not_forked() -> None:
    global _runtime_of
    if _runtime_of is None:
        _runtime_of = os.getpid()
    elif _runtime_of != os.getpid():
        raise OSError(
            f"process {os.getpid()} was forked from process {_runtime_of}, which had used an object store by then, and "
            "obstore does not work in both: start processes with the method spawn (or forkserver) of multiprocessing, "
            "or fork before the first table in a store is opened"
        )


def _text(error: BaseException) -> str:
    """Return an error's message with its causes, as delta-rs writes it."""
    text, _, debug = str(error).partition(_DEBUG)
    causes = []
    if "HttpError" in debug or "reqwest" in debug:
        for pattern, words in _CAUSES:
            if found := pattern.search(debug):
                causes.append(found.expand(words))
    return ": ".join([text.strip().rstrip(":"), *causes])

"""Files that are the same on all brokers of a cluster, as their readers and writers see them: see `shared_files.py`."""

from __future__ import annotations

import posixpath
from collections.abc import Callable

from sparkonce.broker_lite.log.storage import Storage
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError
from sparkonce.kafka.protocol.primitives import Buffer


class AnnouncedFiles:
    """A storage's files; a write becomes a decision of the controller, which `SharedFiles` carries out."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self.announce: Callable[[str, str], None] | None = None
        """Called with a file's name and text; raises KafkaError NOT_CONTROLLER if this is not the controller."""
        self.ahead: dict[str, str] = {}
        """Files that are valid but not on the disk yet: just decided by this controller, or their write failed."""

    def read(self, path: str) -> bytes:
        """See `Files`."""
        ahead = self.ahead.get(posixpath.basename(path))
        return self.storage.read(path) if ahead is None else ahead.encode()

    def write(self, path: str, data: Buffer, *, durable: bool, private: bool = False) -> None:  # noqa: ARG002
        """See `Files`: all are durable, and `SharedFiles` knows which are private."""
        if self.announce is None:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "this broker is not in its cluster yet")
        self.announce(posixpath.basename(path), bytes(data).decode())

"""The faults of a store, and rules for the requests that they hit: shared by proxy, tests and lab."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum


class Fault(Enum):
    """The fault of a request."""

    SLOW_DOWN = "503 SlowDown"
    UNAVAILABLE = "500 InternalError"
    CONFLICT = "409 ConditionalRequestConflict"
    """S3's response to a conflicting conditional write: nothing was written, and the client should retry."""
    EXPIRED = "403 ExpiredToken"
    DENIED = "403 AccessDenied"
    NO_ANSWER = "no answer"
    """It is not forwarded; the connection stays open until the client gives up."""
    LOST_ANSWER = "the answer is lost"
    """It is forwarded, and the connection is closed instead of a response."""
    LATE = "late"
    """It is forwarded long after its client has given up: by `FaultProxy.deliver_late`."""
    CUT = "the answer ends halfway"
    """It is forwarded, and the connection is closed after half of the response body."""


@dataclass(frozen=True, slots=True)
class Rule:
    """Which requests a fault hits: those that match, without the first ``skip``, at most ``times`` of them (0: all)."""

    fault: str
    """The name of a `Fault`."""
    method: str = ""
    """A regular expression for the method; empty for all."""
    path: str = ""
    """A regular expression searched in path and query."""
    conditional: bool = False
    """Whether only writes with ``If-None-Match`` match."""
    times: int = 1
    skip: int = 0

    def matches(self, method: str, path: str, conditional: bool) -> bool:
        """Whether a request matches."""
        if self.method and not re.fullmatch(self.method, method):
            return False
        return bool(re.search(self.path, path)) and (conditional or not self.conditional)


COMMIT = r"_delta_log/\d{20}\.json$"
"""The path of a commit."""
DATA_FILE = r"\.parquet(\?|$)"
LISTING = r"[?&]list-type=2"

"""The faults of a store, and a rule that says which requests meet one: shared by proxy, tests and lab."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum


class Fault(Enum):
    """What happens to a request."""

    SLOW_DOWN = "503 SlowDown"
    UNAVAILABLE = "500 InternalError"
    CONFLICT = "409 ConditionalRequestConflict"
    """S3's answer to a conditional write that meets another one: nothing was written, and it is to be tried again."""
    EXPIRED = "403 ExpiredToken"
    DENIED = "403 AccessDenied"
    NO_ANSWER = "no answer"
    """It is not passed on; the connection stays open until the client gives up."""
    LOST_ANSWER = "the answer is lost"
    """It is passed on, and the connection is closed in place of an answer."""
    LATE = "late"
    """It is passed on when its client has long given up: when `FaultProxy.deliver_late` says so."""
    CUT = "the answer ends halfway"
    """It is passed on, and the connection is closed after half of the answer's body."""


@dataclass(frozen=True, slots=True)
class Rule:
    """Which requests meet a fault: those that match, after ``skip`` of them, and ``times`` of them (0: all)."""

    fault: str
    """The name of a `Fault`."""
    method: str = ""
    """A regular expression for the method; empty for all."""
    path: str = ""
    """A regular expression that is searched in path and query."""
    conditional: bool = False
    """Whether only writes with ``If-None-Match`` match."""
    times: int = 1
    skip: int = 0

    def matches(self, method: str, path: str, conditional: bool) -> bool:
        """Whether a request is one that the rule is about."""
        if self.method and not re.fullmatch(self.method, method):
            return False
        return bool(re.search(self.path, path)) and (conditional or not self.conditional)


COMMIT = r"_delta_log/\d{20}\.json$"
"""The path of a commit."""
DATA_FILE = r"\.parquet(\?|$)"
LISTING = r"[?&]list-type=2"

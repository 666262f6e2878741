"""Steps: external events of a simulated cluster, and when they happen."""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple


class Kind(Enum):
    """The kinds of external events."""

    PRODUCE = "produce"
    TRANSACT = "transact"
    MEMBER = "member"
    CRASH = "crash"
    POWER = "power"
    CUT_SHORT = "cut-short"
    CRASH_LEADER = "crash-leader"
    CRASH_CONTROLLER = "crash-controller"
    CRASH_ALL = "crash-all"
    STOP = "stop"
    PAUSE = "pause"
    PAUSE_LEADER = "pause-leader"
    BLIND = "blind"
    SPLIT = "split"
    DEAF = "deaf"
    STORM = "storm"
    CLOCK = "clock"
    FULL = "full"
    BROKEN = "broken"
    ELECT = "elect"
    AMBUSH = "ambush"
    DUEL = "duel"
    THERE_AND_BACK = "there-and-back"
    LAGGARD = "laggard"
    SETTINGS = "settings"
    DEFAULTS = "defaults"
    MOVE = "move"
    FLIP = "flip"
    JAM = "jam"
    LOSE_MARKER = "lose-marker"
    SERVER_DOWN = "server-down"
    SERVER_CUT = "server-cut"
    SERVERS_DOWN = "servers-down"
    NO_WAY = "no-way"
    SESSION_ENDS = "session-ends"
    HANG_UP = "hang-up"
    CONTROLLER_HANGS = "controller-hangs"
    LOSE_DECISION = "lose-decision"
    DEPOSE = "depose"
    RACK = "rack"
    LAPSE_IN_PROPOSAL = "lapse-in-proposal"
    LAPSE_IN_ROLE = "lapse-in-role"
    LOSE_HEARTBEAT = "lose-heartbeat"
    LIE = "lie"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"


CLIENTS: Final = (Kind.PRODUCE, Kind.TRANSACT, Kind.MEMBER)
"""Actions of clients; the rest are faults, and actions of administrators."""


class Step(NamedTuple):
    """One event; the kind determines what the numbers mean (see `faults`)."""

    at_ms: int
    kind: Kind
    target: int
    duration_ms: int = 0
    amount: int = 0

    def __str__(self) -> str:
        return f"{self.at_ms} ms {self.kind.value} target={self.target} for {self.duration_ms} ms amount={self.amount}"

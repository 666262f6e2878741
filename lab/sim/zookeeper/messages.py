"""What clients and servers of a simulated ZooKeeper tell each other."""

from __future__ import annotations

from enum import Enum
from typing import Any, NamedTuple

from sparkonce.broker_lite.cluster.zookeeper_nodes import Operation
from sparkonce.broker_lite.server.zookeeper_session import ZooKeeperError


class Kind(Enum):
    """What is asked for."""

    GET = "get"
    EXISTS = "exists"
    CHILDREN = "children"
    SYNC = "sync"
    MULTI = "multi"
    PING = "ping"
    CLOSE = "close"


class Hello(NamedTuple):
    """The first message of a connection."""

    session: int
    """0 for a new one."""
    timeout_ms: int
    last_zxid: int
    """What the client has seen: it goes to no server that is behind that."""


class Welcome(NamedTuple):
    """The answer to it."""

    session: int
    """0 if it has expired."""
    timeout_ms: int


class Request(NamedTuple):
    """What a client asks for; a watch is about what it reads."""

    kind: Kind
    path: str = ""
    operations: tuple[Operation, ...] = ()
    watch: bool = False


class Answer(NamedTuple):
    """The answer to the oldest request that has none yet."""

    result: Any
    error: ZooKeeperError | None
    zxid: int


class Event(NamedTuple):
    """A watch has fired."""

    path: str

"""Messages between clients and servers of a simulated ZooKeeper."""

from __future__ import annotations

from enum import Enum
from typing import Any, NamedTuple

from sparkonce.broker_lite.cluster.zookeeper_nodes import Operation
from sparkonce.broker_lite.server.zookeeper_session import ZooKeeperError


class Kind(Enum):
    """Kinds of requests."""

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
    """0 for a new session."""
    timeout_ms: int
    last_zxid: int
    """The last transaction that the client has seen: it connects to no server that is behind it."""


class Welcome(NamedTuple):
    """The response to it."""

    session: int
    """0 if the session has expired."""
    timeout_ms: int


class Request(NamedTuple):
    """A client's request; a watch covers what it reads."""

    kind: Kind
    path: str = ""
    operations: tuple[Operation, ...] = ()
    watch: bool = False


class Answer(NamedTuple):
    """The response to the oldest pending request."""

    result: Any
    error: ZooKeeperError | None
    zxid: int


class Event(NamedTuple):
    """A fired watch."""

    path: str

"""What a cluster rests on: who the controller is, what it has decided, and which brokers are there.

Theory of operation: the controller's decisions form one log, and only one broker may append to it. Each broker asks to
lead, many times a second; the one that does gets the cluster as the former controllers left it, and appends. All of
them read the log on. A controller that has been replaced without its knowledge appends in vain: what it appends never
counts, and it learns so before it answers anybody (`durable_offset`).

`FileCoordination` does this with files and locks that the brokers of one machine share, `ZooKeeperCoordination` with a
ZooKeeper, for brokers on several machines.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import Protocol

from sparkonce.broker_lite.controller.image import ClusterImage
from sparkonce.broker_lite.controller.records import Record

Step = ClusterImage | list[Record]
"""What is next in the log: all of the cluster, or changes that belong together."""


class OvertakenError(OSError):
    """Another broker has become the controller: what this one appended last does not count, as far as is known."""


class Coordination(Protocol):
    """One broker's access to what its cluster rests on; used from the broker's one thread, and it never blocks long."""

    # Who leads.

    @property
    def epoch(self) -> int:
        """The controller epoch that this broker leads in, or has led in last; -1 if never."""

    def lead(self, monotonic_ms: int, now_ms: int) -> ClusterImage | None:
        """Become the controller if there is none; return the cluster as the controllers before left it.

        None while another broker is the controller, or it is not known yet whether this one is: ask again soon. The
        image is the caller's to change, by what it appends.

        Raises:
            OSError: if this broker cannot be the controller, as the log cannot be read or written.
        """

    def keep_leading(self, monotonic_ms: int, now_ms: int) -> bool:
        """Show that the controller is alive, several times a second; return whether it has not been replaced.

        Raises:
            OSError: if it cannot go on.
        """

    def resign(self) -> None:
        """Let another broker be the controller; nothing happens if this one is not."""

    on_lead: Callable[[], None]
    """Called as soon as others count on a `touch` of this broker, before it reads or writes a log as the controller."""

    # The log.

    @property
    def is_log_long(self) -> bool:
        """Whether this controller should resign, so that the next one begins the log anew with a snapshot."""

    @property
    def durable_offset(self) -> int:
        """The offset up to which what this controller has appended is sure to count."""

    def append(self, records: Sequence[Record], base_offset: int, now_ms: int) -> None:
        """Append a decision, which the image from `lead` has already, as a whole or not at all.

        Raises:
            OSError: if that fails; then it is not known whether it counts. OvertakenError if this is not the
                controller any more. A failure that shows later is raised by `keep_leading`.
        """

    def poll(self) -> list[Step]:
        """Return what has been appended since the last call, as far as it counts.

        Raises:
            OSError: if it cannot be read.
        """

    on_change: list[Callable[[], None]]
    """Called when there may be more to `poll`, or `durable_offset` has risen."""

    on_report: Callable[[], None]
    """Called when another broker may have changed something, died, or ceased to lead; see `may_rest`."""

    # Brokers.

    def announce(self, incarnation: uuid.UUID, addresses: Sequence[tuple[str, str, int]], lock_id: str) -> None:
        """Let the cluster know that this broker is there; to be called when its data directory is locked.

        `incarnation` is that of this start of the broker, addresses are name, host and port of each listener, and
        `lock_id` tells its lock from all others, see `Host`.
        """

    @property
    def in_session(self) -> bool:
        """Whether the cluster counts this broker as there: else it must lead nothing, as others may take its place."""

    def is_gone(self, broker_id: int) -> bool:
        """Whether a broker is known to be dead, or cut off from the cluster."""

    def is_announced(self, broker_id: int, incarnation: uuid.UUID) -> bool:
        """Whether this start of a broker is known to be the one that is there: all others of that id are dead.

        Where that is not known yet, it is soon.
        """

    @property
    def may_rest(self) -> bool:
        """Whether all methods need to be called only now and then until `on_report` is called.

        Never where the others' changes cannot be heard of; and not while the controller has been silent for long, so
        that one that hangs is replaced in time.
        """

    @property
    def advice(self) -> str:
        """What to look at where this broker has no session, or no broker becomes the controller."""

    def touch(self, now_ms: int) -> None:
        """Show that the process is alive although its event loop is busy; the one method for another thread."""

    def close(self) -> None:
        """Take no more part; a second call does nothing."""

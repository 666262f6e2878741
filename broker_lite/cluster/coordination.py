"""The basis of a cluster: elects the controller, stores its decisions, and knows which brokers are alive.

Theory of operation: the controller's decisions form one log, and only one broker may append to it. Each broker tries
to lead, many times a second; the controller gets the cluster as the former controllers left it, and appends. All
brokers follow the log. A controller that has been replaced without knowing it is fenced: its appends never
count, and it learns so before it answers any request (`durable_offset`).

`FileCoordination` does this with files and locks that the brokers of one machine share, `ZooKeeperCoordination` with a
ZooKeeper, for brokers on several machines.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import Protocol

from sparkonce.broker_lite.controller.image import ClusterImage
from sparkonce.broker_lite.controller.records import MetadataRecord

Step = ClusterImage | list[MetadataRecord]
"""The next part of the log: the whole cluster, or changes that belong together."""


class OvertakenError(OSError):
    """Another broker has become the controller: as far as is known, this one's last append does not count."""


class Coordination(Protocol):
    """One broker's access to its cluster's basis; used from the broker's only thread, and never blocks long."""

    # Leadership.

    @property
    def epoch(self) -> int:
        """The epoch in which this broker is, or last was, the controller; -1 if never."""

    def lead(self, monotonic_ms: int, now_ms: int) -> ClusterImage | None:
        """Become the controller if there is none; return the cluster as the controllers before left it.

        None while another broker is the controller, or the election has no result yet: call it again soon. The caller
        owns the image, and changes it by its appends.

        Raises:
            OSError: if this broker cannot be the controller, as the log cannot be read or written.
        """

    def keep_leading(self, monotonic_ms: int, now_ms: int) -> bool:
        """Show, several times a second, that the controller lives; return whether this is still it. Raises OSError."""

    def resign(self) -> None:
        """Let another broker be the controller; does nothing if this one is not."""

    on_lead: Callable[[], None]
    """Called when a `touch` of this broker is first needed, before it reads or writes a log as the controller."""

    # The log.

    @property
    def is_log_long(self) -> bool:
        """Whether this controller should resign, so that the next one begins a new log with a snapshot."""

    @property
    def durable_offset(self) -> int:
        """The offset up to which this controller's appends are committed."""

    def append(self, records: Sequence[MetadataRecord], base_offset: int, now_ms: int) -> None:
        """Append a decision, which is already in the image from `lead`, as a whole or not at all.

        Raises:
            OSError: if that fails; then its outcome is unknown. OvertakenError if this broker is no longer the
                controller. A later failure is raised by `keep_leading`.
        """

    def poll(self) -> list[Step]:
        """Return the committed part of the log since the last call. Raises OSError if the log cannot be read."""

    on_change: list[Callable[[], None]]
    """Called when there may be more to `poll`, or `durable_offset` has increased."""

    on_report: Callable[[], None]
    """Called when another broker may have changed something, died, or resigned; see `may_rest`."""

    # Brokers.

    def announce(self, incarnation: uuid.UUID, addresses: Sequence[tuple[str, str, int]], lock_id: str) -> None:
        """Register this broker as alive; to be called when its data directory is locked.

        `incarnation` is that of this start of the broker, addresses are name, host and port of each listener, and
        `lock_id` is the unique id of its lock, see `Host`.
        """

    @property
    def in_session(self) -> bool:
        """Whether the cluster counts this broker as alive; if not, it must lead nothing, as others may replace it."""

    def is_gone(self, broker_id: int) -> bool:
        """Whether a broker is known to be dead, or cut off from the cluster."""

    def is_announced(self, broker_id: int, incarnation: uuid.UUID) -> bool:
        """Whether this start of a broker is known to be alive (others of that id are dead); if unknown, it soon is."""

    @property
    def may_rest(self) -> bool:
        """Whether all methods may be called rarely until `on_report` is called.

        Never if others' changes are not reported; nor while the controller has been silent for long, so that one that
        hangs is replaced in time.
        """

    @property
    def advice(self) -> str:
        """What to check when this broker has no session, or no broker becomes the controller."""

    def touch(self, now_ms: int) -> None:
        """Show that the process is alive although its event loop is busy; the only method for another thread."""

    def close(self) -> None:
        """Leave; a second call does nothing."""

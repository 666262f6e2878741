"""The interfaces between a member and the rest of its broker and cluster."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from typing import Any, Protocol

from sparkonce.broker_lite.cluster.controller_service import Decision, Result
from sparkonce.broker_lite.controller.image import ClusterImage
from sparkonce.broker_lite.controller.records import MetadataRecord
from sparkonce.broker_lite.waiting import Promise

Answer = Callable[[Any], None]
"""Called with a response, or None without one: the broker died, timed out, or is not connected."""


class ControllerRole(Protocol):
    """The controller's interface on a broker, which may be the controller or not."""

    @property
    def active(self) -> bool:
        """Whether this broker is the controller."""

    @property
    def epoch(self) -> int:
        """The epoch in which it is, or last was, the controller."""

    @property
    def is_written(self) -> bool:
        """Whether all decisions of this controller are durable."""

    def check_has_others(self) -> None:
        """Reject a request that only brokers of a cluster send, if this broker is standalone.

        Raises:
            ProtocolError: if so; the connection must be closed.
        """

    def written(self) -> Promise[bool]:
        """Promise that all decisions so far are durable; False if this controller resigns before."""

    def decide(self, decision: Decision[Result]) -> Result:
        """Let the controller decide; the decision is valid once it is durable: `is_written`.

        Raises:
            KafkaError: NOT_CONTROLLER; KAFKA_STORAGE_ERROR if nothing could be decided; and the decision's errors.
        """

    def prepare(
        self, name: str, topic_id: uuid.UUID, indexes: Collection[int], settings: Mapping[str, str]
    ) -> Generator[int, None, None]:
        """Create the logs of new partitions, if this broker is sure to get them; yields units of work.

        To be followed by `end_preparation` after the decision.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR, or TOPIC_ALREADY_EXISTS if the same is under way for this name.
        """

    def end_preparation(self, name: str, topic_id: uuid.UUID) -> None:
        """Remove the logs of partitions that were not created."""

    def decide_together(self, decisions: Sequence[Decision[object]]) -> Generator[int, None, None]:
        """Let the controller decide several things in one write; yields units of work; raises as `decide`."""

    def settle(self) -> None:
        """Apply decisions here, if that is up to this broker."""

    def tick(self) -> None:
        """Do periodic work, many times a second."""

    @property
    def may_rest(self) -> bool:
        """Whether nothing is due before a change, so that `tick` may be called rarely."""

    def close(self) -> None:
        """Resign."""


class BrokerRole(Protocol):
    """A broker's role in its cluster (`Lifecycle`)."""

    @property
    def registered(self) -> bool:
        """Whether all decisions before this start of the broker have been applied."""

    @property
    def broker_epoch(self) -> int:
        """The epoch of this start of the broker; NO_BROKER_EPOCH before it has registered."""

    def close(self) -> None:
        """Stop."""


class Surroundings(Protocol):
    """A broker's view of the others (`Coordination`)."""

    @property
    def in_session(self) -> bool:
        """Whether the cluster counts this broker as alive; if not, it must lead nothing, as others may replace it."""

    def is_gone(self, broker_id: int) -> bool:
        """Whether a broker is known to be dead, or cut off from the cluster."""

    def is_announced(self, broker_id: int, incarnation: uuid.UUID) -> bool:
        """Whether this start of a broker is known to be alive: then all others of that id are dead."""

    @property
    def may_rest(self) -> bool:
        """Whether the others' changes are reported, and none of them seems to hang (`Coordination`)."""

    on_report: Callable[[], None]
    """Called when another broker may have changed something, died, or resigned."""

    def poll(self) -> Sequence[ClusterImage | list[MetadataRecord]]:
        """Return the committed decisions of controllers since the last call.

        Raises:
            OSError: if they cannot be read.
        """

    def close(self) -> None:
        """Leave; a second call does nothing."""


class Peers(Protocol):
    """Sends requests to brokers, this one included."""

    def send(self, broker_id: int, request: Any, then: Answer) -> None:
        """Send a request to a broker; its answer, or None, comes later, on the broker's thread."""

"""What a member needs of the rest of a broker and of its cluster: types only."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from typing import Any, Protocol

from sparkonce.broker_lite.cluster.controller_service import Decision, Result
from sparkonce.broker_lite.controller.image import ClusterImage
from sparkonce.broker_lite.controller.records import Record

Answer = Callable[[Any], None]
"""Called with a response, or None if none came: the broker died, took too long, or is not connected."""


class ControllerRole(Protocol):
    """What a broker has of the controller, which it may be or not."""

    @property
    def active(self) -> bool:
        """Whether this broker is the controller."""

    @property
    def epoch(self) -> int:
        """The epoch that it decides in, or has decided in last."""

    @property
    def is_written(self) -> bool:
        """Whether all that this controller has decided is durable."""

    def check_has_others(self) -> None:
        """Refuse a request that only brokers of a cluster send each other, if this one is in none.

        Raises:
            ProtocolError: if so: its connection is to be closed.
        """

    def when_written(self, then: Callable[[bool], None]) -> None:
        """Call back when all that this controller has decided so far is durable; with False if it is over before."""

    def decide(self, decision: Decision[Result]) -> Result:
        """Let the controller decide; what follows counts once it is durable: `is_written`.

        Raises:
            KafkaError: NOT_CONTROLLER; KAFKA_STORAGE_ERROR if nothing could be decided; and what the decision raises.
        """

    def prepare(
        self, name: str, topic_id: uuid.UUID, indexes: Collection[int], settings: Mapping[str, str]
    ) -> Generator[int, None, None]:
        """Make what this broker needs of new partitions, if it is sure to get them; yields units of work.

        To be followed by `end_preparation` when it is decided whether there are to be any.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR, or TOPIC_ALREADY_EXISTS if the same is under way for this name.
        """

    def end_preparation(self, name: str, topic_id: uuid.UUID) -> None:
        """Remove what was made of partitions that were not decided."""

    def decide_together(self, decisions: Sequence[Decision[object]]) -> Generator[int, None, None]:
        """Let the controller decide several things in one write; yields units of work; raises as `decide`."""

    def settle(self) -> None:
        """Have applied here what was decided, as far as that is up to this broker."""

    def tick(self) -> None:
        """Do what is due, many times a second."""

    @property
    def may_rest(self) -> bool:
        """Whether nothing is due before something changes, so that `tick` need not be called so often."""

    def close(self) -> None:
        """Be the controller no more."""


class BrokerRole(Protocol):
    """What a broker is to its cluster (`Lifecycle`)."""

    @property
    def registered(self) -> bool:
        """Whether what was decided until this start of the broker has been applied."""

    @property
    def broker_epoch(self) -> int:
        """The epoch of this start of the broker; NO_BROKER_EPOCH before it has registered."""

    def close(self) -> None:
        """Take no more part."""


class Surroundings(Protocol):
    """What a broker sees of the others (`Coordination`)."""

    @property
    def in_session(self) -> bool:
        """Whether the cluster counts this broker as there: else it must lead nothing, as others may take its place."""

    def is_gone(self, broker_id: int) -> bool:
        """Whether a broker is known to be dead, or cut off from the cluster."""

    def is_announced(self, broker_id: int, incarnation: uuid.UUID) -> bool:
        """Whether this start of a broker is known to be the one that is there: all others of that id are dead."""

    @property
    def may_rest(self) -> bool:
        """Whether the others' changes are reported, and none of them seems to hang: look seldom (`Coordination`)."""

    on_report: Callable[[], None]
    """Called when another broker may have changed something, died, or ceased to lead."""

    def poll(self) -> Sequence[ClusterImage | list[Record]]:
        """Return what the controllers have decided since the last call, as far as it counts.

        Raises:
            OSError: if it cannot be read.
        """

    def close(self) -> None:
        """Take no more part; a second call does nothing."""


class Peers(Protocol):
    """How requests reach brokers, this one included."""

    def send(self, broker_id: int, request: Any, then: Answer) -> None:
        """Send a request to a broker; its answer, or None, comes later, on the broker's thread."""

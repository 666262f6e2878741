"""The true state of a cluster on a simulated ZooKeeper, and checks of controllers and brokers against it.

Each decision is read from the nodes as soon as it counts, before any broker can receive it. The invariants here:

- `one-controller`: a decision counts only in the last claimed epoch, and if it comes from the start of a broker that
  claimed it; decisions are numbered without a gap, and each begins where the previous one has ended. As in Kafka, the
  epoch fences, not the session: a client may send in its next session what was given to it before it told of the end.
- `decided-is-written`: no controller treats a decision as durable that is not.
- `out-of-session`: when ZooKeeper expires a session, its broker knows.
- `images-equal`: at the end the nodes of the state agree with the log.
"""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING

from lab.sim.judges.images import as_known
from lab.sim.marks import Mark
from sparkonce.broker_lite.cluster import zookeeper_nodes as nodes
from sparkonce.broker_lite.cluster.zookeeper_nodes import Create, Head, SetData
from sparkonce.broker_lite.controller.image import ClusterImage
from sparkonce.broker_lite.replication.invariants import ViolationError, check_images_equal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from lab.sim.machine.machine import Machine
    from lab.sim.machine.process import Process
    from lab.sim.run import Run
    from lab.sim.zookeeper.ensemble import Ensemble
    from lab.sim.zookeeper.leader import Session
    from lab.sim.zookeeper.tree import Transaction
    from sparkonce.broker_lite.cluster.coordination import Step
    from sparkonce.broker_lite.cluster.zookeeper_nodes import Operation
    from sparkonce.broker_lite.server.zookeeper_session import ZooKeeperError

_NOBODY = 0
_STATE = (
    nodes.REGISTRATIONS,
    nodes.TOPICS,
    nodes.DOCUMENTS,
    nodes.DEFAULT_SETTINGS,
    nodes.PRODUCER_IDS,
    nodes.CONTROLLER_TERMS,
)


class ZooKeeperTruth:
    """See `Truth`; each decision is read as it is made."""

    def __init__(self, run: Run, brokers: Mapping[int, Machine], ensemble: Ensemble) -> None:
        self.image = ClusterImage()
        self.on_step: list[Callable[[Step], None]] = []
        """See `Truth`."""
        self._run = run
        self._brokers = brokers
        self._ensemble = ensemble
        self._number = 0
        self._epoch = -1
        self._claimed_in = 0
        """The session that has claimed the latest epoch."""
        self._claimed_by: object = None
        """Its client."""
        ensemble.on_decided.append(self._transacted)
        ensemble.on_elected.append(partial(run.mark, Mark.ZOOKEEPER_LEADER))
        ensemble.on_expired.append(self._expired)

    def look(self) -> None:
        """See `Truth`."""

    @property
    def holder(self) -> int:
        """See `Truth`; 0 if nobody is the controller."""
        node = self._ensemble.tree.find(nodes.CONTROLLER)
        return _NOBODY if node is None else int(json.loads(node.data)["brokerId"])

    def joined(self, machine: Machine) -> None:
        """Observe what a broker treats as durable."""
        process = machine.process
        assert process is not None
        assert process.coordination is not None
        process.coordination.on_change.append(partial(self._check_durable, process))

    def _check_durable(self, process: Process) -> None:
        coordination = process.coordination
        if coordination is not None and coordination.durable_offset > self.image.next_offset:
            found, written = coordination.durable_offset, self.image.next_offset
            text = f"broker {process.machine.node_id} takes {found} for durable, and {written} is written"
            self._run.violated(ViolationError("decided-is-written", text))

    def _transacted(self, transaction: Transaction, error: ZooKeeperError | None) -> None:
        operations = transaction.operations or ()
        if error is not None:
            if any(each.path == nodes.CHANGES for each in operations):
                self._run.mark(Mark.DECIDED_IN_VAIN)
            return
        self._run.judge(lambda: self._judge(transaction.session, operations))

    def _judge(self, session: int, operations: tuple[Operation, ...]) -> None:
        for each in operations:
            if isinstance(each, SetData) and each.path == nodes.CONTROLLER_EPOCH:
                self._claimed(self._ensemble.sessions[session], nodes.epoch_of(each.data))
            elif isinstance(each, Create) and each.path.startswith(f"{nodes.CHANGES}/"):
                self._decided(self._ensemble.sessions[session], each)

    def _claimed(self, session: Session, epoch: int) -> None:
        self._run.trace(lambda: f"controller epoch {epoch} is claimed in session {session.number:#x}")
        if epoch <= self._epoch:
            raise ViolationError("epochs-rise", f"controller epoch {epoch} is claimed after {self._epoch}")
        self._epoch, self._claimed_in, self._claimed_by = epoch, session.number, session.client

    def _decided(self, session: Session, created: Create) -> None:
        change = nodes.decode_change(created.path, created.data)
        head = Head.decode(self._ensemble.tree.get(nodes.CHANGES).data)
        text = f"{created.path} of controller epoch {head.controller_epoch}, in session {session.number:#x}"
        if head.controller_epoch != self._epoch or session.client is not self._claimed_by:
            text = f"{text}: {self._epoch} was claimed in session {self._claimed_in:#x}"
            raise ViolationError("one-controller", text)
        if head.number != self._number + 1 or change.base_offset != self.image.next_offset:
            raise ViolationError("one-controller", f"{text} begins at {change.base_offset}, after {self._number}")
        self._number = head.number
        for take in self.on_step:
            take(change.records)

    def _expired(self, session: int) -> None:
        run = self._run
        run.trace(lambda: f"session {session:#x} has had its time")
        run.mark(Mark.ZOOKEEPER_SESSION)
        for machine in self._brokers.values():
            process = machine.process
            if process is None or process.zookeeper is None or process.zookeeper.session != session:
                continue
            if process.coordination is not None and process.coordination.in_session:
                text = f"broker {machine.node_id} counts itself in session {session:#x}, which has ended"
                run.violated(ViolationError("out-of-session", text))

    def look_at_the_end(self, versions: Iterable[type[Process]]) -> None:
        """Compare the nodes of the state with the log, by what all versions of brokers know."""
        tree = self._ensemble.tree
        found = {path: tree.get(path).data for path in tree.paths() if path.startswith(_STATE)}
        image = nodes.image_of(found)
        image.next_offset, image.controller_id = self.image.next_offset, self.image.controller_id
        image.controller_epoch = self.image.controller_epoch
        known = self.image
        for version in versions:
            image, known = as_known(image, version), as_known(known, version)
        check_images_equal(image, known, "what the nodes of ZooKeeper say")

"""A process that can die, pause and start again, and the requests between processes.

Theory of operation: whatever a process has planned is dropped when it dies, as its incarnation is another one then.
While it is paused, everything waits in the order in which it came, time-outs too, and happens at once when it goes on.
A process that dies in the middle of a change, or that cannot write, leaves its disk as it is at that point.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sparkonce.broker_lite.sim.disk import CutShort

if TYPE_CHECKING:
    from sparkonce.broker_lite.sim.network import Network
    from sparkonce.broker_lite.sim.scheduler import Scheduler

Action = Callable[..., None]


class Node:
    """One process, started again and again under the same id."""

    def __init__(self, node_id: int, scheduler: Scheduler, network: Network) -> None:
        self.node_id = node_id
        self.scheduler = scheduler
        self.network = network
        self.incarnation = 0
        """Rises when it starts and when it dies."""
        self.alive = False
        self.clock_ahead_ms = 0
        self._backlog: list[tuple[Action, tuple[Any, ...]]] | None = None

    @property
    def now_ms(self) -> int:
        """The time by its own clock."""
        return self.scheduler.now_ms + self.clock_ahead_ms

    @property
    def paused(self) -> bool:
        """Whether it is paused."""
        return self._backlog is not None

    def after(self, delay_ms: int, action: Action, *arguments: Any) -> None:
        """Let it do something later, if it is still the same process then."""
        self.scheduler.after(delay_ms, self.do, self.incarnation, action, arguments)

    def do(self, incarnation: int, action: Action, arguments: tuple[Any, ...]) -> None:
        """Let it do something now, or when it is no longer paused."""
        if incarnation != self.incarnation:
            return
        if self._backlog is not None:
            self._backlog.append((action, arguments))
            return
        try:
            action(*arguments)
        except CutShort:
            self.cut_short()
        except OSError as error:
            self.cannot_write(error)

    def pause(self) -> None:
        """Stop doing anything."""
        if self._backlog is None:
            self._backlog = []

    def resume(self) -> None:
        """Go on, with what has come in the meantime."""
        backlog, self._backlog = self._backlog or [], None
        incarnation = self.incarnation
        for action, arguments in backlog:  # if it dies at one of them, the rest is dropped
            self.do(incarnation, action, arguments)

    def started(self) -> None:
        """Note that a new process begins."""
        self.incarnation += 1
        self.alive = True
        self._backlog = None

    def ended(self) -> None:
        """Note that the process is no more."""
        self.incarnation += 1
        self.alive = False
        self._backlog = None

    def cut_short(self) -> None:
        """Die in the middle of a change."""
        raise NotImplementedError

    def cannot_write(self, error: OSError) -> None:
        """Die as the disk does not take what must be written."""
        raise NotImplementedError


class Call:
    """A request on its way, and back; `then` is called once, with None if no answer came in time."""

    __slots__ = ("_deliver", "_done", "_incarnation", "_receiver", "_sender", "_sender_incarnation", "_then")

    def __init__(
        self,
        sender: Node,
        receiver: Node,
        handle: Callable[[Call], None],
        then: Callable[[Any], None],
        timeout_ms: int,
    ) -> None:
        """Plan the time-out; see `send`."""
        self._sender = sender
        self._sender_incarnation = sender.incarnation
        self._receiver = receiver
        self._incarnation = receiver.incarnation
        self._deliver = handle
        self._then = then
        self._done = False
        sender.after(timeout_ms, self._finish, None)

    def send(self, *, may_double: bool = True) -> None:
        """Send it through the network; a process that asks itself does without."""
        sender, receiver = self._sender, self._receiver
        if sender is receiver:
            sender.after(1, self._deliver, self)
        else:
            sender.network.send(sender.node_id, receiver.node_id, self.arrive, may_double=may_double)

    def answer(self, result: Any) -> None:
        """Send the answer; what is not None counts as one."""
        sender, receiver = self._sender, self._receiver
        if sender is receiver:
            sender.after(1, self._finish, result)
        else:
            receiver.network.send(receiver.node_id, sender.node_id, lambda: self._return(result))

    def arrive(self) -> None:
        """Reach the receiver, or find no process there."""
        receiver = self._receiver
        if receiver.incarnation != self._incarnation or not receiver.alive:
            receiver.network.send(receiver.node_id, self._sender.node_id, lambda: self._return(None))
            return
        receiver.do(self._incarnation, self._deliver, (self,))

    def _return(self, result: Any) -> None:
        self._sender.do(self._sender_incarnation, self._finish, (result,))

    def _finish(self, result: Any) -> None:
        if not self._done:
            self._done = True
            self._then(result)

"""An asyncio event loop in simulated time; one for each process.

Theory of operation: all loops share one `Scheduler`, the only queue of events. So the order of callbacks
depends only on the seed, and time passes only between them. The loop of a paused process keeps
its callbacks until it resumes; the loop of a dead process runs none. Futures, tasks and timeouts are
asyncio's own. Sockets are `sockets.Descriptor`s, transports `transports.Transport`s.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from asyncio import events
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import TYPE_CHECKING, Any

from lab.sim.machine.transports import Listening, Transport

if TYPE_CHECKING:
    from lab.sim.machine.sockets import Descriptor, Network
    from lab.sim.scheduler import Scheduler


class SimulatedLoop(asyncio.AbstractEventLoop):
    """The loop of one process."""

    def __init__(
        self, scheduler: Scheduler, network: Network, address: str, on_error: Callable[[dict[str, Any]], None]
    ) -> None:
        """`on_error` takes the context of asyncio's exception handler; `address` is that of the process's machine."""
        self.scheduler = scheduler
        self.network = network
        self.address = address
        self.alive = True
        self._on_error = on_error
        self._held: list[events.Handle] | None = None
        self._tasks: list[asyncio.Task[Any]] = []

    # Life of the process.

    def end(self) -> None:
        """Stop running callbacks: the process has died."""
        self.alive = False
        self._held = None
        for task in self._tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined]  # asyncio would warn of what is meant
            if not task.done():
                with contextlib.suppress(BaseException):  # cleanup in a dead process has no effect
                    task.get_coro().close()

    @property
    def paused(self) -> bool:
        """Whether callbacks wait for `resume`."""
        return self._held is not None

    def pause(self) -> None:
        """Hold back every callback from now on."""
        if self._held is None:
            self._held = []

    def resume(self) -> None:
        """Run the callbacks held back, in the order in which they were due."""
        held, self._held = self._held, None
        for handle in held or ():
            self.scheduler.after(0, self._run, handle)

    def _run(self, handle: events.Handle) -> None:
        if not self.alive:
            return
        if self._held is not None:
            self._held.append(handle)
            return
        if handle.cancelled():
            return
        events._set_running_loop(self)
        try:
            handle._run()
        finally:
            events._set_running_loop(None)

    # asyncio's interface.

    def time(self) -> float:
        """See asyncio."""
        return self.scheduler.now_ms / 1000

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """See asyncio."""
        handle = events.Handle(callback, args, self, context)
        self.scheduler.after(0, self._run, handle)
        return handle

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """See asyncio; the delay is rounded up to milliseconds.

        The minimum is a millisecond: code that waits for the rest of a sum of seconds would otherwise loop forever.
        """
        delay_ms = max(math.ceil(delay * 1000 - 1e-6), 1 if delay > 0 else 0)
        handle = events.TimerHandle(self.time() + delay_ms / 1000, callback, args, self, context)
        self.scheduler.after(delay_ms, self._run, handle)
        return handle

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """See asyncio."""
        return self.call_later(when - self.time(), callback, *args, context=context)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """See asyncio: a cancelled timer is skipped when it is due."""

    def create_future(self) -> asyncio.Future[Any]:
        """See asyncio."""
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, Any], *, name: str | None = None, context: Context | None = None
    ) -> asyncio.Task[Any]:
        """See asyncio."""
        task = asyncio.Task(coro, loop=self, name=name, context=context)
        self._tasks = [each for each in self._tasks if not each.done()]
        self._tasks.append(task)
        return task

    def get_debug(self) -> bool:
        """See asyncio."""
        return False

    def is_running(self) -> bool:
        """See asyncio."""
        return self.alive

    def is_closed(self) -> bool:
        """See asyncio."""
        return not self.alive

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """See asyncio."""
        self._on_error(context)

    # Sockets.

    async def create_server(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str = "",
        port: int = 0,
        *,
        sock: Descriptor | None = None,
        backlog: int = 100,
    ) -> Listening:
        """See asyncio; a process listens at its machine's one address."""
        del host, backlog
        sock = sock or self.network.bind(self.address, port)
        return Listening(self, protocol_factory, sock)

    async def create_connection(  # type: ignore[override]
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> tuple[Transport, asyncio.BaseProtocol]:
        """See asyncio."""
        future = self.create_future()
        self.network.connect(self, host, port, future)
        descriptor: Descriptor = await future
        protocol = protocol_factory()
        transport = Transport(self, descriptor, protocol)
        made = self.create_future()
        transport.begin(made)
        await made
        return transport, protocol

    def remove_reader(self, fd: Any) -> bool:
        """Stop accepting at a listening socket."""
        return self.network.stop_accepting(fd)

    def add_writer(  # type: ignore[override]
        self, fd: Any, callback: Callable[[], object]
    ) -> None:
        """See asyncio."""
        self.network.descriptors[fd].wait_for_room(callback)

    def remove_writer(self, fd: Any) -> bool:
        """See asyncio."""
        found = self.network.descriptors.get(fd)
        return found is not None and found.wait_for_room(None)

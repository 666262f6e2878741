"""A read-only view of a cluster's log and brokers in ZooKeeper: for any thread, without an event loop."""

from __future__ import annotations

import asyncio
import threading
import time
import uuid
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from sparkonce.broker_lite.cluster.coordination import Step
from sparkonce.broker_lite.server.zookeeper import NOBODY, ZooKeeperCoordination
from sparkonce.broker_lite.server.zookeeper_client import ZooKeeperClient

START_TIMEOUT_S: Final = 15.0
SESSION_MS: Final = 10_000
POLL_TIMEOUT_S: Final = 1.0
"""How long a poll waits for ZooKeeper; without an answer it returns the last known state."""

Result = TypeVar("Result")


class ZooKeeperObserver:
    """Follows the log in a thread of its own, from construction to `close`."""

    def __init__(self, connect: str, *, create: bool = False) -> None:
        """Connect; create the cluster if `create` is set. Raises OSError if there is no answer, or another use."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="zookeeper-observer", daemon=True)
        self._thread.start()
        client = ZooKeeperClient(connect, SESSION_MS, self._loop)
        self._coordination = ZooKeeperCoordination(connect, client, NOBODY, self._loop, _monotonic_ms, uuid.uuid4)
        try:
            self.cluster_id = self._run(self._coordination.start("", START_TIMEOUT_S, create=create))
            # Read all of it, even if that takes long: an incomplete first read would show an empty cluster.
            self._run(asyncio.wait_for(self._coordination.refresh(), START_TIMEOUT_S))
        except BaseException:
            self.close()
            raise

    def poll(self) -> list[Step]:
        """Return the log's changes since the last call."""
        return self._run(self._poll())

    def is_gone(self, broker_id: int) -> bool:
        """Whether a broker is known to be dead, or cut off from the cluster."""
        return self._coordination.is_gone(broker_id)

    def close(self) -> None:
        """Stop; a second call does nothing."""
        if not self._loop.is_closed():
            self._run(self._close())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    async def _poll(self) -> list[Step]:
        try:
            async with asyncio.timeout(POLL_TIMEOUT_S):
                await self._coordination.refresh()
        except OSError:  # a TimeoutError is one
            pass
        return self._coordination.poll()

    async def _close(self) -> None:
        self._coordination.close()
        await asyncio.sleep(0)  # let the cancelled task end

    def _run(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()


def _monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000

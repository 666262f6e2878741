"""A Prometheus that scrapes the brokers, sometimes requests other paths, and opens too many connections.

metrics-true    a page can be parsed; counters never decrease between a broker's start and end; and after the
cluster has recovered, exactly one broker is the controller, no partition is under-replicated, and
log end offsets are correct
"""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from lab.sim.clients.client import Guest, UnreachableError
from lab.sim.machine.settings import METRICS_PORT
from lab.sim.marks import Mark
from sparkonce.broker_lite.replication.invariants import ViolationError

if TYPE_CHECKING:
    from lab.sim.machine.machine import Machine
    from lab.sim.world import World

_PAUSE_MS: Final = 400
_PAGE: Final = b"GET /metrics HTTP/1.1\r\nHost: broker\r\n\r\n"
_OTHERS: Final = (
    (b"HEAD /metrics?name=x HTTP/1.1\r\n\r\n", b"200"),
    (b"POST /metrics HTTP/1.1\r\n\r\n", b"405"),
    (b"GET / HTTP/1.0\r\n\r\n", b"404"),
    (b"GET /" + b"x" * 9_000, b"431"),
)
"""Other paths, each with its response status."""
_LOOKS: Final = 20
_CONTROLLER: Final = 'kafka_controller_KafkaController_Value{name="ActiveControllerCount"}'
_UNDER_REPLICATED: Final = 'kafka_server_ReplicaManager_Value{name="UnderReplicatedPartitions"}'
_SAMPLE: Final = re.compile(r"(\w+)(\{[^}]*\})? (-?[0-9.]+)")

Samples = dict[str, float]
"""Values by name and labels, as on the page."""


class _Download(asyncio.Protocol):
    """Collects the bytes of one connection until it ends."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.received = b""
        self.transport: asyncio.BaseTransport | None = None
        self.ended = loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio."""
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """See asyncio."""
        self.received += data

    def connection_lost(self, _error: Exception | None) -> None:
        """See asyncio."""
        if not self.ended.done():
            self.ended.set_result(None)


class Scraper(Guest):
    """Reads the metrics of all brokers until all faults are over."""

    port = METRICS_PORT

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._counted: dict[tuple[int, int], Samples] = {}
        """The counters of each start of each broker, except those of topics that may be deleted."""

    async def work(self) -> None:
        """See `Guest`."""
        while not self.is_over:
            await self.pause(int(self.rng.random() * _PAUSE_MS))
            machine = self.rng.choice(list(self.world.brokers.values()))
            with suppress(UnreachableError):
                if self.rng.random() < 0.8:
                    await self._scrape(machine)
                else:
                    request, status = self.rng.choice(_OTHERS)
                    self._check_status(await self._download(machine, request), request, status)

    async def _scrape(self, machine: Machine) -> Samples:
        """Return the samples of a broker's page.

        Raises:
            UnreachableError: if there is no page.
        """
        incarnation = machine.incarnation
        answer = await self._download(machine, _PAGE)
        self._check_status(answer, _PAGE, b"200")
        if machine.incarnation != incarnation:
            raise UnreachableError("it comes from a broker that has died since")
        head, _, body = answer.partition(b"\r\n\r\n")
        if b"\r\nContent-Length: %d\r\n" % len(body) not in head:
            raise UnreachableError("the page is not whole")
        return self._samples(machine, body.decode())

    async def _download(self, machine: Machine, request: bytes) -> bytes:
        """Send a request, and return the whole response.

        Raises:
            UnreachableError: if there is no connection, or the response does not end.
        """
        transport = None
        try:
            async with asyncio.timeout(self.timeout_ms / 1000):
                transport, download = await self.loop.create_connection(
                    lambda: _Download(self.loop), machine.address, self.port
                )
                assert isinstance(download, _Download)
                transport.write(request)
                await download.ended
        except (OSError, TimeoutError) as error:
            raise UnreachableError(str(error)) from None
        finally:
            if transport is not None:
                transport.close()
        return download.received

    def _check_status(self, answer: bytes, request: bytes, status: bytes) -> None:
        right = b"HTTP/1.1 " + status
        if right.startswith(answer):
            raise UnreachableError("no whole answer")  # too many connections, or the broker has ended
        if not answer.startswith(right):
            self._violated(f"{request[:20]!r} is answered with {answer[:40]!r}")

    def _samples(self, machine: Machine, page: str) -> Samples:
        """Parse a page, and compare it with the one before."""
        found: Samples = {}
        counters: set[str] = set()
        for line in page.splitlines():
            if line.startswith("# TYPE") and line.endswith(" counter"):
                counters.add(line.split()[2])
            if line.startswith("#"):
                continue
            sample = _SAMPLE.fullmatch(line)
            if sample is None:
                self._violated(f"broker {machine.node_id}'s page has the line {line!r}")
                continue
            name, labels, value = sample.groups(default="")
            found[name + labels] = float(value)
        self.world.mark(Mark.MEASURED)
        planned = {f'topic="{topic.name}"' for topic in self.world.plan.topics}
        counted = {
            name: value
            for name, value in found.items()
            if name.partition("{")[0] in counters and ('topic="' not in name or any(each in name for each in planned))
        }
        self._compare(machine, counted)
        return found

    def _compare(self, machine: Machine, counted: Samples) -> None:
        """Compare counters with the last ones of the same start of the broker."""
        before = self._counted.get((machine.node_id, machine.incarnation), {})
        fallen = [name for name, value in before.items() if counted.get(name, value) < value]
        if fallen:
            self._violated(f"broker {machine.node_id} counts {fallen[0]} backwards, to {counted[fallen[0]]}")
        self._counted[machine.node_id, machine.incarnation] = counted

    def _violated(self, text: str) -> None:
        self.world.violated(ViolationError("metrics-true", text))

    # Checks at the end.

    async def look(self) -> None:
        """Scrape until the pages are correct; brokers may still learn of a leader that was just elected."""
        for _ in range(_LOOKS):
            wrong = await self._wrong()
            if wrong is None:
                break
            await self.back_off()
        else:
            self._violated(f"the cluster has recovered, and {wrong}")

    async def _wrong(self) -> str | None:
        active = 0.0
        for machine in self.world.brokers.values():
            try:
                page = await self._scrape(machine)
            except UnreachableError as error:
                return f"broker {machine.node_id} has no metrics: {error}"
            active += page[_CONTROLLER]
            if page[_UNDER_REPLICATED]:
                return f"broker {machine.node_id} counts {page[_UNDER_REPLICATED]:.0f} partitions that lack replicas"
            wrong = self._wrong_end(machine.node_id, page)
            if wrong is not None:
                return wrong
        return None if active == 1 else f"{active:.0f} brokers say that they are the controller"

    def _wrong_end(self, broker_id: int, page: Samples) -> str | None:
        for (owner, key), log in self.world.logs.items():
            place = (self.world.topic_of(key).name, key[1])
            if owner != broker_id or place not in self.world.places:
                continue
            # A replica moved to another broker has no log here any more, also if this broker was down meanwhile.
            state = self.world.image.partition(key)
            end = log.log_end_offset if state is not None and broker_id in state.replicas else None
            said = page.get(f'kafka_log_Log_Value{{name="LogEndOffset",partition="{place[1]}",topic="{place[0]}"}}')
            if said != end:
                return f"broker {broker_id} says that {place} ends at {said}, not {end}"
        return None

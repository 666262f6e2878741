"""One server of a simulated ZooKeeper: its clients' connections and watches, and its applied transactions."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from lab.sim.zookeeper.messages import Answer, Event, Hello, Kind, Request, Welcome
from lab.sim.zookeeper.tree import Change, Transaction, Tree
from lab.sim.zookeeper.wire import Direction
from sparkonce.broker_lite.server.zookeeper_session import ZooKeeperError

if TYPE_CHECKING:
    from lab.sim.zookeeper.leader import Leadership


class ServedConnection:
    """A connection, as its server sees it; requests are answered in the order of arrival."""

    def __init__(
        self,
        server: Server,
        client: object,
        client_machine: int,
        to_client: Callable[[Any], None],
        broken: Callable[[], None],
    ) -> None:
        """`to_client` receives messages to the client, `broken` is called when the connection has ended."""
        roads = server.leadership.roads
        self.server = server
        self.client = client
        self.is_open = True
        self.session = 0
        self.there = Direction(roads, client_machine, server.machine, self._arrived, self.end)
        self.back = Direction(roads, server.machine, client_machine, to_client, self.end)
        self._broken = broken
        self._waiting: deque[_Waiting] = deque()

    def end(self) -> None:
        """Close it for both sides; some requests in flight may still arrive."""
        if self.is_open:
            self.is_open = False
            self.server.forget(self)
            self.there.close(some=self.server.is_up)
            self.back.close(some=False)
            self._broken()

    def _arrived(self, message: Hello | Request) -> None:
        if isinstance(message, Hello):
            self.server.greet(self, message)
        elif self.session:
            self._take(message)

    def welcome(self, session: int, timeout_ms: int) -> None:
        """Answer the first message."""
        self.session = session
        self.back.send(Welcome(session, timeout_ms))
        if not session:
            self.server.leadership.scheduler.after(0, self.end)

    def _take(self, request: Request) -> None:
        server, leadership = self.server, self.server.leadership
        server.hear(self.session)
        waiting = _Waiting(request)
        self._waiting.append(waiting)
        if request.kind in (Kind.MULTI, Kind.CLOSE, Kind.SYNC):
            operations = request.operations if request.kind is Kind.MULTI else None
            transaction = Transaction(self.session, operations)
            sync = request.kind is Kind.SYNC

            def done(error: ZooKeeperError | None) -> None:
                waiting.answer = Answer(None, error, server.tree.zxid)
                self._answer()

            server.ask(lambda: None if sync else leadership.transact(self, transaction), done)
        self._answer()

    def _answer(self) -> None:
        while self._waiting:
            first = self._waiting[0]
            answer = first.answer or self._read(first.request)
            if answer is None:
                return
            self._waiting.popleft()
            self.back.send(answer)

    def _read(self, request: Request) -> Answer | None:
        """Answer a request from this server's state; None if the leader must be asked."""
        tree = self.server.tree
        result: object = None
        try:
            match request.kind:
                case Kind.GET:
                    result = tree.get(request.path)
                case Kind.EXISTS:
                    result = tree.find(request.path)
                case Kind.CHILDREN:
                    result = tree.children(request.path)
                case Kind.PING:
                    pass
                case _:
                    return None
        except ZooKeeperError as error:
            return Answer(None, error, tree.zxid)
        if request.watch and self.is_open:
            self.server.watch(self, Change(request.path, request.kind is Kind.CHILDREN))
        return Answer(result, None, tree.zxid)


class _Waiting:
    """A request without a response yet."""

    __slots__ = ("answer", "request")

    def __init__(self, request: Request) -> None:
        self.request = request
        self.answer: Answer | None = None


class Server:
    """A server; its applied transactions are on its disk."""

    def __init__(self, machine: int, leadership: Leadership, changed: Callable[[], None]) -> None:
        """Call `changed` when the server has started, stopped, or was cut off."""
        self.machine = machine
        self.leadership = leadership
        self._changed = changed
        self.tree = Tree()
        self.is_up = True
        self.is_cut = False
        self.serves = False
        """Whether it accepts clients: it follows a leader, as far as it knows."""
        self._epoch = 0
        self._cuts = 0
        self._joined = 0
        self._connections: dict[ServedConnection, None] = {}
        self._watches: dict[Change, dict[ServedConnection, None]] = {}
        self._heard: dict[int, None] = {}
        self._held: list[Callable[[], None]] = []
        """Messages that wait for a connection to the leader."""
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()
        self._there_ms = self._back_ms = 0
        """When the last message in flight to or from the leader arrives."""
        self._is_pinged = False
        """Whether the leader has asked for active sessions while nothing got through."""
        leadership.on_decided.append(lambda *_: self._apply_later())
        leadership.scheduler.after(leadership.plan.tick_ms // 2, self._ping_later)

    # Start and stop.

    @property
    def is_reachable(self) -> bool:
        """Whether it can take part in a majority."""
        return self.is_up and not self.is_cut

    def join(self) -> None:
        """Follow the leader, and accept clients when all decided transactions are applied."""
        self._epoch = self.leadership.epoch
        self._joined += 1
        self.leadership.scheduler.after(self.leadership.roads.delay_ms(), self._begin, self._joined)

    def _begin(self, joined: int) -> None:
        if joined == self._joined and self.is_reachable and self._epoch == self.leadership.epoch:
            self._apply(self.leadership.tree.zxid)
            self.serves = True

    def leave(self) -> None:
        """End all connections: to clients, and to the leader."""
        self._joined += 1
        self.serves = False
        self._held.clear()
        self._waiting.clear()
        self._heard.clear()
        self._is_pinged = False
        for connection in list(self._connections):
            connection.end()
        self._watches.clear()

    def crash(self) -> None:
        """Stop at once."""
        if self.is_up:
            self.is_up = False
            self.leave()
            self._changed()

    def start(self) -> None:
        """Start again."""
        if not self.is_up:
            self.is_up = True
            self._return()

    def cut(self) -> None:
        """Cut it off from the other servers; it continues for a while."""
        if not self.is_cut:
            self.is_cut = True
            self._cuts += 1
            self.leadership.scheduler.after(self.leadership.plan.sync_limit_ms, self._give_up, self._cuts)
            self._changed()

    def _give_up(self, cuts: int) -> None:
        if self.is_cut and cuts == self._cuts:
            self._epoch = 0
            self.leave()

    def heal(self) -> None:
        """Restore its connections to the other servers."""
        if not self.is_cut:
            return
        self.is_cut = False
        if self.is_up:
            self._return()

    def _return(self) -> None:
        leadership = self.leadership
        if leadership.machine is None:
            self._changed()
        if self.serves and self._epoch == leadership.epoch:  # its absence went unnoticed
            held, self._held = self._held, []
            for each in held:
                self._send_to_leader(each)
            if self._is_pinged:
                self._is_pinged = False
                self._receive(0, self._pinged, self._joined)
            self._apply_later()
        elif leadership.machine is not None:
            self.leave()
            self.join()

    # The leader.

    def _send_to_leader(self, arrive: Callable[[], None]) -> None:
        """Send something to the leader, in order."""
        if self.is_cut:
            self._held.append(arrive)
            return
        scheduler, joined = self.leadership.scheduler, self._joined
        is_leader = self.leadership.machine == self.machine
        delay_ms = 0 if is_leader else self.leadership.roads.delay_ms()
        self._there_ms = max(self._there_ms, scheduler.now_ms + delay_ms)

        def arrives() -> None:
            if not self.is_cut:
                arrive()
            elif joined == self._joined:
                self._held.append(arrive)

        scheduler.after(self._there_ms - scheduler.now_ms, arrives)

    def ask(self, action: Callable[[], Any], then: Callable[[Any], None]) -> None:
        """Ask the leader for something; `then` is called when this server has everything decided until then."""
        leadership, epoch = self.leadership, self.leadership.epoch

        def arrive() -> None:
            if leadership.machine is None or leadership.epoch != epoch:
                return  # this server leaves, and its connections end
            result = action()
            if self.serves:
                self._waiting.append((leadership.tree.zxid, lambda: then(result)))
                self._apply_later()

        self._send_to_leader(arrive)

    def _apply_later(self) -> None:
        """Apply the transactions decided so far, some time later."""
        leadership = self.leadership
        lag_ms = 0 if leadership.is_calm else leadership.plan.lag_ms
        late_ms = int(leadership.lag.random() ** 2 * lag_ms)
        self._receive(late_ms, self._hears, leadership.tree.zxid, self._joined)

    def _receive(self, late_ms: int, arrive: Callable[..., None], *arguments: int) -> None:
        """Deliver something from the leader, in order."""
        scheduler = self.leadership.scheduler
        self._back_ms = max(self._back_ms, scheduler.now_ms + late_ms + self.leadership.roads.delay_ms())
        scheduler.after(self._back_ms - scheduler.now_ms, arrive, *arguments)

    def _hears(self, zxid: int, joined: int) -> None:
        if self.serves and not self.is_cut and joined == self._joined:
            self._apply(zxid)

    def _apply(self, zxid: int) -> None:
        """Apply transactions, fire watches, then answer the requests that have waited."""
        while self.tree.zxid < zxid:
            transaction = self.leadership.history[self.tree.zxid]
            _, changes = self.tree.apply(transaction)
            for change in changes:
                for connection in self._watches.pop(change, ()):
                    connection.back.send(Event(change.path))
            if transaction.operations is None:
                for connection in [each for each in self._connections if each.session == transaction.session]:
                    self.leadership.scheduler.after(0, connection.end)
        while self._waiting and self._waiting[0][0] <= self.tree.zxid:
            self._waiting.popleft()[1]()

    # Clients.

    def connect(self, connection: ServedConnection) -> None:
        """Accept a connection."""
        self._connections[connection] = None
        if not self.serves:
            self.leadership.scheduler.after(0, connection.end)

    def forget(self, connection: ServedConnection) -> None:
        """Forget a connection."""
        self._connections.pop(connection, None)
        for watching in self._watches.values():
            watching.pop(connection, None)

    def greet(self, connection: ServedConnection, hello: Hello) -> None:
        """Handle the first message of a connection."""
        leadership = self.leadership
        if not self.serves or hello.last_zxid > self.tree.zxid:
            connection.end()
            return
        for other in [each for each in self._connections if each.session == hello.session != 0]:
            other.end()
        timeout_ms = max(hello.timeout_ms, 2 * leadership.plan.tick_ms)

        def ask() -> int:
            return (
                leadership.welcome(connection, connection.client, hello.session, timeout_ms)
                if connection.is_open
                else 0
            )

        self.ask(ask, lambda session: connection.welcome(session, timeout_ms))

    def watch(self, connection: ServedConnection, change: Change) -> None:
        """Notify a client of the next change."""
        self._watches.setdefault(change, {})[connection] = None

    def hear(self, session: int) -> None:
        """Note a session's activity."""
        if self.leadership.machine == self.machine:
            self.leadership.touch(session)
        else:
            self._heard[session] = None

    def _ping_later(self) -> None:
        """Schedule the leader's question, twice a tick, for active sessions."""
        leadership = self.leadership
        leadership.scheduler.after(max(leadership.plan.tick_ms // 2, 1), self._ping_later)
        if self.serves and leadership.machine is not None and self._epoch == leadership.epoch:
            self._receive(0, self._pinged, self._joined)

    def _pinged(self, joined: int) -> None:
        """Report active sessions to the leader, which has asked."""
        if joined != self._joined:
            return
        if self.is_cut:
            self._is_pinged = True
            return
        leadership, epoch = self.leadership, self._epoch
        heard, self._heard = self._heard, {}

        def arrive() -> None:
            if leadership.machine is not None and leadership.epoch == epoch:
                for session in heard:
                    leadership.touch(session)

        self._send_to_leader(arrive)

"""A broker registers, shows that it is alive, and asks to be let go: what it sends, and after which answers."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest

from sparkonce.broker_lite.cluster.lifecycle import BEHIND_MS, MAX_RETRY_MS, RETRY_MS, Identity, Lifecycle, State
from sparkonce.broker_lite.controller.image import ClusterImage, LogPosition
from sparkonce.broker_lite.controller.records import NO_BROKER_EPOCH, BrokerRegistered, ControllerElected
from sparkonce.broker_lite.log.checkpoints import BROKER_EPOCH
from sparkonce.kafka.protocol import apis
from sparkonce.kafka.protocol.apis import ApiKey
from sparkonce.kafka.protocol.errors import ErrorCode
from tests.unit.cluster.scheduling import HandLoop
from tests.unit.cluster.shared import SharedClock, SharedStorage

INTERVAL_MS = 2_000
US = Identity(1, "cluster", uuid.UUID(int=1), (("PLAINTEXT", "h", 9),))


class Setup:
    """A lifecycle, and what it has sent: each request with the callback for its answer."""

    def __init__(
        self,
        storage: SharedStorage | None = None,
        stopped_cleanly: bool = False,
        followed_to: LogPosition | None = None,
    ) -> None:
        self.storage = storage or SharedStorage()
        self.loop = HandLoop(SharedClock())
        self.sent: list[tuple[Any, Callable[[Any], None]]] = []
        self.image = ClusterImage()
        self.alive = 0
        self.failure: OSError | None = None
        self.lifecycle = Lifecycle(
            US,
            self.storage,
            "/data",
            stopped_cleanly,
            INTERVAL_MS,
            self.loop,
            lambda request, then: self.sent.append((request, then)),
            lambda: self.image,
            lambda: self.failure,
            followed_to=followed_to,
        )
        self.lifecycle.on_alive = self.count_alive

    def count_alive(self) -> None:
        self.alive += 1

    def request(self, after_ms: int = 0) -> Any:
        """Return the one request that is sent within some time."""
        self.loop.run(after_ms)
        assert len(self.sent) == 1, self.sent
        return self.sent[0][0]

    def answer(self, api_key: ApiKey, **fields: Any) -> None:
        (_, then) = self.sent.pop()
        then(apis.response(api_key, 0, **fields))

    def no_answer(self) -> None:
        self.sent.pop()[1](None)

    def register(self, epoch: int = 5) -> None:
        self.lifecycle.start()
        assert self.request().API_KEY == ApiKey.BROKER_REGISTRATION
        self.answer(ApiKey.BROKER_REGISTRATION, error_code=0, broker_epoch=epoch)

    def know_of(self, epoch: int) -> None:
        """Know the log up to a former registration of this broker."""
        self.image.apply(ControllerElected(2, 1))
        self.image.next_offset = epoch
        self.image.apply(BrokerRegistered(1, uuid.UUID(int=9), "h", 9))

    def heartbeat(self, after_ms: int = 0, **fields: Any) -> Any:
        request = self.request(after_ms)
        assert request.API_KEY == ApiKey.BROKER_HEARTBEAT
        self.answer(ApiKey.BROKER_HEARTBEAT, **({"error_code": 0, "is_fenced": False} | fields))
        return request


def test_it_registers_until_it_is_taken_in_and_then_sends_heartbeats() -> None:
    setup = Setup()
    setup.lifecycle.start()
    first = setup.request()
    assert (first.broker_id, first.cluster_id, first.incarnation_id) == (1, "cluster", US.incarnation)
    assert first.previous_broker_epoch == NO_BROKER_EPOCH
    assert [(each.name, each.host, each.port) for each in first.listeners] == list(US.listeners)
    setup.no_answer()
    setup.request(RETRY_MS)
    setup.answer(ApiKey.BROKER_REGISTRATION, error_code=int(ErrorCode.DUPLICATE_BROKER_REGISTRATION))
    setup.request(RETRY_MS)
    setup.answer(ApiKey.BROKER_REGISTRATION, error_code=0, broker_epoch=5)
    assert (setup.lifecycle.broker_epoch, setup.lifecycle.state, setup.alive) == (5, State.ALIVE, 0)
    setup.image.next_offset = 4
    beat = setup.heartbeat(is_fenced=True)
    assert (beat.broker_epoch, beat.current_metadata_offset, beat.want_shut_down) == (5, 4, False)
    assert setup.alive == 0
    setup.heartbeat(RETRY_MS)
    assert setup.alive == 1
    setup.loop.run(INTERVAL_MS - 1)
    assert setup.sent == []
    setup.heartbeat(1)
    assert setup.alive == 1


def test_one_that_is_refused_asks_less_and_less_often_and_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    setup = Setup()
    setup.lifecycle.start()
    refusals = 0
    for _ in range(600 * 1_000 // RETRY_MS):
        setup.loop.run(RETRY_MS)
        if setup.sent:
            refusals += 1
            setup.answer(ApiKey.BROKER_REGISTRATION, error_code=int(ErrorCode.INCONSISTENT_CLUSTER_ID))
    assert 590 <= refusals <= 610, "once a second, after the first ones"
    assert caplog.text.count("INCONSISTENT_CLUSTER_ID") == 1
    setup.request(MAX_RETRY_MS)
    setup.answer(ApiKey.BROKER_REGISTRATION, error_code=int(ErrorCode.DUPLICATE_BROKER_REGISTRATION))
    assert caplog.text.count("cannot register") == 2
    setup.request(RETRY_MS)
    setup.answer(ApiKey.BROKER_REGISTRATION, error_code=0, broker_epoch=5)
    assert setup.lifecycle.state is State.ALIVE


def test_one_whose_directory_has_failed_asks_to_be_fenced(caplog: pytest.LogCaptureFixture) -> None:
    setup = Setup()
    setup.register()
    assert not setup.heartbeat().want_fence
    setup.failure = OSError(5, "Input/output error")
    assert setup.heartbeat(INTERVAL_MS).want_fence
    assert setup.heartbeat(INTERVAL_MS, is_fenced=True).want_fence
    setup.loop.run(INTERVAL_MS - 1)
    assert setup.sent == [], "nothing is to be waited for"
    assert caplog.text.count("Input/output error") == 1


def test_it_is_registered_when_the_log_has_this_start_of_it() -> None:
    setup = Setup()
    assert not setup.lifecycle.registered
    setup.image.apply(BrokerRegistered(1, uuid.UUID(int=2), "h", 9))
    assert not setup.lifecycle.registered
    setup.image.apply(BrokerRegistered(1, US.incarnation, "h", 9))
    assert setup.lifecycle.registered


@pytest.mark.parametrize("clean", [True, False])
def test_it_names_its_former_epoch_only_after_a_clean_stop(clean: bool) -> None:
    before = Setup()
    before.register(epoch=5)
    after = Setup(before.storage, stopped_cleanly=clean)
    after.know_of(5)
    after.lifecycle.start()
    assert after.request().previous_broker_epoch == (5 if clean else NO_BROKER_EPOCH)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("epoch", [0, 4, 5])
def test_it_does_not_join_a_log_that_has_gone_back(clean: bool, epoch: int) -> None:
    """What that does not know any more would be taken for deleted."""
    before = Setup()
    before.register(epoch=5)
    after = Setup(before.storage, stopped_cleanly=clean)
    after.know_of(5)
    after.register(epoch=epoch)
    after.image.next_offset = epoch
    after.image.apply(BrokerRegistered(1, US.incarnation, "h", 9))
    assert "has gone back" in after.lifecycle.refusal
    assert (after.alive, after.sent, after.lifecycle.registered) == (1, [], False)
    again = Setup(before.storage, stopped_cleanly=clean)
    again.image.next_offset = 6
    again.image.apply(BrokerRegistered(1, US.incarnation, "h", 9))
    again.register(epoch=6)
    assert (again.lifecycle.refusal, again.lifecycle.registered) == ("", True)


@pytest.mark.parametrize("known", [None, 4])
def test_it_does_not_register_with_a_log_that_lacks_its_last_registration(known: int | None) -> None:
    """Each registration makes the log longer: after some starts it would be as long as it was."""
    before = Setup()
    before.register(epoch=5)
    after = Setup(before.storage)
    after.lifecycle.start()
    after.loop.run(2 * BEHIND_MS)
    assert (after.sent, after.lifecycle.refusal) == ([], ""), "there is no controller yet"
    if known is not None:
        after.know_of(known)
    after.image.apply(ControllerElected(2, 7))
    after.image.next_offset = 50
    after.loop.run(2 * BEHIND_MS)
    assert (after.sent, after.alive) == ([], 1)
    assert "has gone back: it is at 50" in after.lifecycle.refusal


@pytest.mark.parametrize(("followed_to", "joins"), [(None, True), (6, True), (7, False)])
def test_it_does_not_register_with_a_log_that_has_lost_what_it_knew_after_its_registration(
    followed_to: int | None, joins: bool
) -> None:
    before, first, then = Setup(), uuid.UUID(int=20), uuid.UUID(int=21)
    before.register(epoch=5)
    after = Setup(before.storage, followed_to=None if followed_to is None else LogPosition(1, first, followed_to))
    after.image.apply(ControllerElected(2, 1, first, 0))
    after.image.next_offset = 5
    after.image.apply(BrokerRegistered(1, uuid.UUID(int=9), "h", 9))
    after.image.apply(ControllerElected(2, 2, then, 6))
    after.lifecycle.start()
    after.loop.run(2 * BEHIND_MS)
    assert (len(after.sent) == 1, after.lifecycle.refusal == "") == (joins, joins)
    if not joins:
        assert "at 7 in controller epoch 2, and " in after.lifecycle.refusal
        assert "that this broker followed to 7 in controller epoch 1." in after.lifecycle.refusal
        after.storage.write(f"/data/{BROKER_EPOCH}", b"-1\n", durable=True)
        again = Setup(before.storage, followed_to=LogPosition(1, first, 7))
        again.lifecycle.start()
        assert again.request().API_KEY == ApiKey.BROKER_REGISTRATION


def test_it_waits_a_little_for_what_it_does_not_know_of_the_log_yet() -> None:
    before = Setup()
    before.register(epoch=5)
    after = Setup(before.storage)
    after.know_of(4)
    after.lifecycle.start()
    after.loop.run(BEHIND_MS // 2)
    assert after.sent == []
    after.know_of(5)
    assert after.request(RETRY_MS).API_KEY == ApiKey.BROKER_REGISTRATION


@pytest.mark.parametrize("content", [b"", b"nine"])
def test_an_epoch_that_cannot_be_read_is_none(content: bytes) -> None:
    storage = SharedStorage()
    storage.write(f"/data/{BROKER_EPOCH}", content, durable=True)
    setup = Setup(storage, stopped_cleanly=True)
    setup.lifecycle.start()
    assert setup.request().previous_broker_epoch == NO_BROKER_EPOCH


def test_an_epoch_that_cannot_be_written_stops_nobody() -> None:
    setup = Setup()
    setup.storage.write_error = OSError("no room")
    setup.register()
    setup.heartbeat()
    assert setup.alive == 1


@pytest.mark.parametrize("error", [ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED])
def test_who_has_lost_its_epoch_registers_again(error: ErrorCode) -> None:
    setup = Setup()
    setup.register()
    setup.heartbeat()
    setup.heartbeat(INTERVAL_MS, error_code=int(error))
    again = setup.request(RETRY_MS)
    assert (again.API_KEY, again.previous_broker_epoch) == (ApiKey.BROKER_REGISTRATION, 5)
    setup.answer(ApiKey.BROKER_REGISTRATION, error_code=0, broker_epoch=9)
    assert setup.heartbeat().broker_epoch == 9


def test_it_asks_to_be_let_go_until_it_is() -> None:
    setup = Setup()
    setup.register()
    setup.heartbeat()
    stopped: list[bool] = []
    setup.lifecycle.stop(lambda: stopped.append(True))
    assert setup.heartbeat(should_shut_down=False).want_shut_down
    setup.request(RETRY_MS)
    setup.no_answer()
    setup.heartbeat(RETRY_MS, error_code=int(ErrorCode.UNKNOWN_SERVER_ERROR))
    assert stopped == []
    assert setup.heartbeat(RETRY_MS, should_shut_down=True, is_fenced=True).want_shut_down
    assert stopped == [True]
    setup.loop.run(10 * INTERVAL_MS)
    assert setup.sent == []


def test_who_waits_for_an_answer_asks_to_be_let_go_after_it() -> None:
    setup = Setup()
    setup.register()
    setup.request()
    setup.lifecycle.stop(lambda: None)
    setup.loop.run(INTERVAL_MS)
    assert not setup.heartbeat().want_shut_down
    assert setup.heartbeat(RETRY_MS, should_shut_down=True).want_shut_down


def test_who_is_not_in_the_cluster_may_stop_at_once() -> None:
    setup, stopped = Setup(), []
    setup.lifecycle.start()
    setup.lifecycle.stop(lambda: stopped.append(True))
    assert stopped == [True]
    setup.loop.run(INTERVAL_MS)
    assert setup.sent == []


def test_a_stranger_of_the_same_id_ends_a_stop() -> None:
    setup, stopped = Setup(), []
    setup.register()
    setup.heartbeat()
    setup.lifecycle.stop(lambda: stopped.append(True))
    setup.heartbeat(error_code=int(ErrorCode.STALE_BROKER_EPOCH))
    assert stopped == [True]

"""`EmbeddedBroker.faults`: the interface for tests, the same for a broker in a thread and in a process.

    with broker.faults.drop_after(api="Produce", topic="orders", times=1) as fault:
        producer.send("orders", b"1")
        fault.wait()

Theory of operation: a rule is applied in the broker; here is its handle. A backend carries rules there: for a thread
it is the rule book itself, for a process the control channel. Rules survive a restart of the broker, with their counts:
they are passed to the next backend.
"""

from __future__ import annotations

import contextlib
import difflib
import threading
import time
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Protocol, TypedDict, Unpack

from sparkonce.broker_lite.faults.rules import Effect, FaultSpec
from sparkonce.kafka.protocol.apis import APIS
from sparkonce.kafka.protocol.errors import ErrorCode

WAIT_S = 30.0


class FaultNeverFiredError(AssertionError):
    """A fault that a test relied on did not happen."""


class DiskWhere(TypedDict, total=False):
    """The selector of a disk fault; a missing key matches any write."""

    topic: str
    partition: int
    nth: int
    times: int | None


class Where(DiskWhere, total=False):
    """The selector of a fault; a missing key matches any request.

    `api` is a name as in Kafka's documentation ("Produce") or several; `nth` the first matching request, counted
    from 1; `times` how many from there on, None for all; `predicate` (broker in a thread only) is called on the
    broker's thread with the decoded request, and returns whether it matches. Its errors are raised by the fault's
    `wait` and at the end of its block; such a request does not match.
    """

    api: str | int | Iterable[str | int]
    client_id: str
    predicate: Callable[[Any], bool]


class Status(TypedDict):
    """The counts of a rule."""

    seen: int
    fired: int
    held: int


class Backend(Protocol):
    """Applies rules. All methods return when they have taken effect."""

    def add(self, rule_id: int, spec: FaultSpec, seen: int, fired: int) -> None:
        """Add a rule, with its counts so far."""

    def remove(self, rule_id: int) -> None:
        """Remove a rule, and release the requests that it holds."""

    def release(self, rule_id: int) -> None:
        """Release the requests held by a pause; the rule remains."""

    def status(self, rule_id: int) -> Status:
        """Return a rule's counts, also after it was removed."""

    def close(self) -> None:
        """Disable all rules, so that the broker can stop."""


class FaultHandle:
    """One fault: shows whether it fired, and ends it. As a context manager it ends with the block."""

    def __init__(self, faults: Faults, rule_id: int, spec: FaultSpec, must_fire: bool) -> None:
        self._faults = faults
        self._must_fire = must_fire
        self.rule_id = rule_id
        self.spec = spec
        self.restarts = 0
        """How many restarts by this fault are complete."""
        self._removed = False
        self._last = Status(seen=0, fired=0, held=0)
        self._predicate_error: BaseException | None = None

    def __repr__(self) -> str:
        return f"<fault {self.rule_id}: {describe(self.spec)}; fired {self._last['fired']}>"

    def __enter__(self) -> FaultHandle:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.remove()
        wrong = self._predicate_error
        if wrong is not None and error is None:
            raise wrong
        if wrong is not None and error is not None and error is not wrong:
            error.add_note(f"Besides, the predicate of the fault raised {wrong!r}: {describe(self.spec)}")
        if kind is None and self._must_fire and not self.fired:
            seen = self._last["seen"]
            raise FaultNeverFiredError(
                f"{describe(self.spec)} never fired: {seen} matching requests or writes, nth={self.spec.nth}. "
                "Pass must_fire=False if that is fine"
            )

    @property
    def fired(self) -> int:
        """How often the fault has happened."""
        return self._status()["fired"]

    @property
    def held(self) -> int:
        """How many requests a pause holds now."""
        return self._status()["held"]

    def wait(self, timeout_s: float = WAIT_S, times: int = 1) -> None:
        """Return when the fault has happened `times` times; for a restart, when the broker is back as often.

        Raises:
            TimeoutError: if that takes longer than `timeout_s` seconds.
            Exception: the predicate's error.
        """
        deadline = time.monotonic() + timeout_s
        restarts = self.spec.effect is Effect.RESTART
        with self._faults._changed:
            while (self.restarts if restarts else self._last["fired"]) < times:
                if self._predicate_error is not None:
                    raise self._predicate_error
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    raise TimeoutError(f"{self!r} did not happen {times} times within {timeout_s} s")
                self._faults._changed.wait(left_s)

    def release(self) -> None:
        """Release the requests held by a pause; later ones are held again."""
        self._faults._release(self)

    def remove(self) -> None:
        """End the fault, and release the requests that it holds. A second call does nothing."""
        self._faults._remove(self)

    def _status(self) -> Status:
        if not self._removed:
            self._last = self._faults._status(self)
        return self._last


class Faults:
    """The faults that can be injected into one broker."""

    def __init__(self, restart: Callable[[], None], process: bool) -> None:
        self._restart_broker = restart
        self._process = process
        # Held while rules are sent to the backend. Never acquired by a thread that reports firings, nor together with
        # the other lock.
        self._placing = threading.RLock()
        self._changed = threading.Condition()
        self._handles: dict[int, FaultHandle] = {}
        self._backend: Backend | None = None
        self._next_id = 1

    def fail(self, error: ErrorCode | str, *, must_fire: bool = True, **where: Unpack[Where]) -> FaultHandle:
        """Answer with an error code, in the API's field for it, and without the request's effect.

        With `topic` or `partition`, the rest of the request is served as usual.
        """
        code = _error_code(error)
        if code is ErrorCode.NONE:
            raise ValueError("NONE is no error")
        return self._new(Effect.FAIL, where, must_fire, error_code=int(code))

    def delay(self, delay_ms: int, *, must_fire: bool = True, **where: Unpack[Where]) -> FaultHandle:
        """Serve the request later; its connection waits, the others do not."""
        return self._new(Effect.DELAY, where, must_fire, delay_ms=delay_ms)

    def drop_before(self, *, must_fire: bool = True, **where: Unpack[Where]) -> FaultHandle:
        """Close the connection instead of serving the request."""
        return self._new(Effect.DROP_BEFORE, where, must_fire)

    def drop_after(self, *, must_fire: bool = True, **where: Unpack[Where]) -> FaultHandle:
        """Serve the request and close the connection instead of answering: the acknowledgement is lost."""
        return self._new(Effect.DROP_AFTER, where, must_fire)

    def throttle(
        self,
        *,
        throttle_time_ms: int = 0,
        bytes_per_s: int = 0,
        must_fire: bool = True,
        **where: Unpack[Where],
    ) -> FaultHandle:
        """Slow clients down: by a throttle time during which they are muted, as quotas do, or by a rate, unreported."""
        if not (throttle_time_ms or bytes_per_s):
            raise ValueError("throttle needs throttle_time_ms or bytes_per_s")
        return self._new(Effect.THROTTLE, where, must_fire, throttle_time_ms=throttle_time_ms, bytes_per_s=bytes_per_s)

    def pause(self, *, must_fire: bool = True, **where: Unpack[Where]) -> FaultHandle:
        """Hold requests until `release` or `remove`; `held` returns how many wait."""
        return self._new(Effect.PAUSE, where, must_fire)

    def restart(
        self, *, kill: bool = False, after_effect: bool = False, must_fire: bool = True, **where: Unpack[Where]
    ) -> FaultHandle:
        """Restart the broker at a request, before or after its effect; by SIGKILL if `kill` (process only).

        Once, unless `times` is given. The request is never answered.
        """
        if kill and not self._process:
            raise ValueError("a broker in a thread cannot be killed: use EmbeddedBroker(process=True)")
        if "times" not in where:
            where["times"] = 1
        return self._new(Effect.RESTART, where, must_fire, kill=kill, after_effect=after_effect)

    def disk_full(self, *, must_fire: bool = True, **where: Unpack[DiskWhere]) -> FaultHandle:
        """Let writes fail with ENOSPC; producers get KAFKA_STORAGE_ERROR. A restart is not affected."""
        return self._new(Effect.DISK_FULL, {**where}, must_fire)

    def slow_disk(self, delay_ms: int, *, must_fire: bool = True, **where: Unpack[DiskWhere]) -> FaultHandle:
        """Delay each write. One thread serves all clients, so all wait."""
        return self._new(Effect.SLOW_DISK, {**where}, must_fire, delay_ms=delay_ms)

    def clear(self) -> None:
        """End all faults."""
        for handle in list(self._handles.values()):
            handle.remove()

    def _new(self, effect: Effect, where: Any, must_fire: bool, **values: Any) -> FaultHandle:
        chosen = dict(where)
        apis = _api_keys(chosen.pop("api", None))
        unknown = set(chosen) - {"topic", "partition", "client_id", "predicate", "nth", "times"}
        if unknown:
            raise TypeError(f"a fault has no {', '.join(sorted(unknown))}: see docs/faults.md")
        if callable(chosen.get("predicate")) and not self._process:
            chosen["predicate"] = self._guarded(chosen["predicate"], lambda: handle)
        spec = FaultSpec(effect=effect, apis=apis, **chosen, **values)
        if self._process:
            spec.to_json()  # rejects a predicate at once
        with self._placing:
            handle = FaultHandle(self, self._next_id, spec, must_fire)
            self._next_id += 1
            self._handles[handle.rule_id] = handle
            if self._backend is not None:
                with contextlib.suppress(OSError):  # a broker that is down gets its rules when it is up again
                    self._backend.add(handle.rule_id, spec, 0, 0)
            return handle

    def _guarded(self, predicate: Callable[[Any], bool], handle: Callable[[], FaultHandle]) -> Callable[[Any], bool]:
        """Catch the errors of a test's predicate in the broker, and raise them in the test."""

        def guarded(message: Any) -> bool:
            try:
                return bool(predicate(message))
            except BaseException as error:  # pytest.fail's is no Exception, and would end the broker's loop
                with self._changed:
                    handle()._predicate_error = handle()._predicate_error or error
                    self._changed.notify_all()
                return False

        return guarded

    # Called by the broker's side.

    def attach(self, backend: Backend) -> None:
        """Add all rules to a broker that has just started."""
        with self._placing:
            self._backend = backend
            for handle in self._handles.values():
                backend.add(handle.rule_id, handle.spec, handle._last["seen"], handle._last["fired"])

    def detach(self) -> None:
        """Keep the counts of a broker that is about to stop, or has died."""
        with self._placing:
            backend, self._backend = self._backend, None
            if backend is None:
                return
            with contextlib.suppress(OSError):  # it is dead: the last reported counts are valid
                for handle in self._handles.values():
                    handle._last = {**backend.status(handle.rule_id), "held": 0}
            backend.close()

    def note(self, rule_id: int, seen: int, fired: int) -> None:
        """Handle the report that a rule has fired; may come from any thread."""
        with self._changed:
            handle = self._handles.get(rule_id)
            if handle is None:
                return
            handle._last = Status(seen=seen, fired=fired, held=handle._last["held"])
            self._changed.notify_all()

    def restart_wanted(self, rule_id: int) -> None:
        """Handle a rule's request to restart the broker; may come from any thread."""
        # Not on this thread: it may be the one that must end first.
        threading.Thread(target=self._restart, args=(rule_id,), name="broker_lite-restart", daemon=True).start()

    def _restart(self, rule_id: int) -> None:
        handle = self._handles.get(rule_id)
        self._restart_broker()
        with self._changed:
            if handle is not None:
                handle.restarts += 1
            self._changed.notify_all()

    def _release(self, handle: FaultHandle) -> None:
        with self._placing:
            if self._backend is not None and not handle._removed:
                self._backend.release(handle.rule_id)

    def _remove(self, handle: FaultHandle) -> None:
        with self._placing:
            if handle._removed:
                return
            if self._backend is not None:
                self._backend.remove(handle.rule_id)
            handle._status()
            handle._removed = True
            del self._handles[handle.rule_id]

    def _status(self, handle: FaultHandle) -> Status:
        with self._placing:
            if self._backend is None:
                return handle._last
            try:
                return self._backend.status(handle.rule_id)
            except OSError:
                return handle._last


def _error_code(error: ErrorCode | str) -> ErrorCode:
    if not isinstance(error, str):
        return ErrorCode(error)
    known = ErrorCode.__members__
    if error not in known:
        near = [name for name in known if error and error.upper() in name]
        near = near or difflib.get_close_matches(error.upper(), known, n=3, cutoff=0.0)
        raise ValueError(f"{error!r} is no error of Kafka's; the nearest are {', '.join(near[:3])}")
    return known[error]


def _api_keys(api: Any) -> tuple[int, ...] | None:
    if api is None:
        return None
    names = {entry.codec_name.lower(): int(entry.key) for entry in APIS.values()}
    keys = []
    for each in [api] if isinstance(api, (str, int)) else api:
        key = names.get(each.lower(), -1) if isinstance(each, str) else int(each)
        if key not in APIS:
            known = ", ".join(sorted(entry.codec_name for entry in APIS.values()))
            raise ValueError(f"api={each!r} is not served here; there are {known}")
        keys.append(key)
    return tuple(keys)


def describe(spec: FaultSpec) -> str:
    """Describe a fault and its selector in a few words."""
    what = spec.effect.value
    if spec.effect is Effect.FAIL:
        what = f"fail with {ErrorCode(spec.error_code).name}"
    names = "/".join(APIS[key].codec_name for key in spec.apis or ())
    where = [names, spec.topic or "", "" if spec.partition is None else f"partition {spec.partition}"]
    return " ".join([what, *filter(None, where)])

"""Where faults take effect: between a connection and the handlers, and under the log. Runs on the broker's loop.

Theory of operation: while there are rules for requests, `Broker.faults` is an `Injector` and each request goes through
`handle`; while there are rules for the disk, the storage calls `check_write`. Otherwise both are None, and nothing
here runs. A request that is delayed or paused keeps its place on its connection, which handles nothing else meanwhile;
other connections continue. It is served even if its client has disconnected, as Kafka serves its request queue.
"""

from __future__ import annotations

import errno
import os
import re
import struct
import time
import weakref
from collections.abc import Callable, Iterable
from typing import Any

from sparkonce.broker_lite import dispatch
from sparkonce.broker_lite.faults import messages
from sparkonce.broker_lite.faults.rules import NOTHING, Effect, Facts, FaultPlan, Place, Rule, RuleBook
from sparkonce.broker_lite.node.broker import Broker
from sparkonce.broker_lite.node.leader import LedPartition
from sparkonce.broker_lite.node.request import Body, CloseConnectionError, Request, answered_version
from sparkonce.broker_lite.waiting import Promise
from sparkonce.kafka.protocol import apis, fetch, produce
from sparkonce.kafka.protocol.apis import ApiKey
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError
from sparkonce.kafka.protocol.fetch import parts_size

_SESSION_ERRORS = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)
_HAND_WRITTEN = frozenset({ApiKey.PRODUCE, ApiKey.FETCH})
_PARTITION = re.compile(r"([a-zA-Z0-9._-]{1,249})-(\d{1,9})")
_THROTTLE = struct.Struct(">i")


class _Facts(Facts):
    """A request as the rules see it."""

    def __init__(self, broker: Broker, request: Request) -> None:
        self.api_key = request.api_key
        self.client_id = request.client_id
        self._broker = broker
        self._request = request
        self._message: Any = None

    def message(self) -> Any:
        """Decode the request, once."""
        if self._message is None:
            self._message = _decode(self._request, self._broker)
        return self._message

    def places(self) -> Iterable[Place]:
        """See `Facts`; each fetch of a session counts for all partitions of the session."""
        message = self.message()
        if self.api_key not in _HAND_WRITTEN:
            yield from messages.places_of(message, self._name_of)
            return
        for topic in message.topics:
            name = topic.name or self._name_of(topic.topic_id)
            if name is not None:
                for partition in topic.partitions:
                    yield name, partition.partition
        if self.api_key == ApiKey.FETCH:
            for key, index in self._broker.fetch_sessions.partitions_of(message.session_id):
                name = key if isinstance(key, str) else self._name_of(key)
                if name is not None:
                    yield name, index

    def _name_of(self, topic_id: Any) -> str | None:
        topic = self._broker.topic_by_id(topic_id)
        return topic.name if topic is not None else None


def _decode(request: Request, broker: Broker) -> Any:
    if request.api_key == ApiKey.PRODUCE:
        return produce.decode_request(request.version, request.body)
    if request.api_key == ApiKey.FETCH:
        return fetch.decode_request(request.version, request.body)
    message = request.message()
    if request.api_key == ApiKey.METADATA and (message.topics is None or (request.version == 0 and not message.topics)):
        # All topics were requested; a fault for one of them must find its name.
        kind = apis.request_class(ApiKey.METADATA).MetadataRequestTopic
        message.topics = [kind(version=request.version, name=topic.name) for topic in broker.topics()]
    return message


class _Altered(Request):
    """A request as the handler sees it: perhaps with fewer elements, and with more in its answer."""

    __slots__ = ("_extra", "_message", "_original", "_throttle_time_ms")

    def __init__(self, request: Request, throttle_time_ms: int) -> None:
        self._original = request
        for name in Request.__slots__:
            setattr(self, name, getattr(request, name))
        self._message: Any = None
        self._extra: dict[str, Any] = {}
        self._throttle_time_ms = throttle_time_ms

    @property
    def overlaps(self) -> bool:
        """See `Request`; the connection looks at the original."""
        return self._original.overlaps

    @overlaps.setter
    def overlaps(self, overlaps: bool) -> None:
        self._original.overlaps = overlaps

    def release_body(self) -> None:
        """See `Request`."""
        super().release_body()
        self._original.release_body()

    def reduce(self, message: Any, refused: dict[str, Any]) -> None:
        """Let the handler see `message`, and add the rejected elements to its answer."""
        self._message = message
        self._extra = {name: value for name, value in refused.items() if isinstance(value, list)}

    def message(self) -> Any:
        """See `Request`."""
        return super().message() if self._message is None else self._message

    def response(self, **values: Any) -> Body:
        """See `Request`."""
        for name, more in self._extra.items():
            values[name] = [*(values.get(name) or ()), *more]
        if self._throttle_time_ms and "throttle_time_ms" in apis.response_class(self.api_key)._struct.fields:
            values["throttle_time_ms"] = self._throttle_time_ms
        return super().response(**values)


class _FailingBroker:
    """The broker as the handlers of Produce and Fetch see it: it leads no partition that matches a rule."""

    def __init__(self, broker: Broker, rule: Rule) -> None:
        self._broker = broker
        self._rule = rule

    def __getattr__(self, name: str) -> Any:
        return getattr(self._broker, name)

    def leading(self, topic: str, index: int) -> LedPartition:
        """See `Broker`."""
        if self._rule.spec.is_at((topic, index)):
            raise KafkaError(ErrorCode(self._rule.spec.error_code), "injected by a fault")
        return self._broker.leading(topic, index)


class Injector:
    """Applies the rules to one broker. `restart` is called when a rule restarts the broker."""

    def __init__(self, broker: Broker, rules: RuleBook, restart: Callable[[Rule], None]) -> None:
        self._broker = broker
        self._rules = rules
        self._restart = restart
        self._paused: dict[int, list[Promise[None]]] = {}
        self._muted_until_ms: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()

    def held(self, rule_id: int) -> int:
        """How many requests a pause holds now."""
        return len(self._paused.get(rule_id, ()))

    def release(self, rule_id: int) -> None:
        """Release the requests held by a pause."""
        for promise in self._paused.pop(rule_id, ()):
            promise.complete(None)

    def unmute(self) -> None:
        """Unmute connections that a throttle has muted."""
        self._muted_until_ms.clear()

    async def handle(self, request: Request) -> Body | None:
        """Answer a request in place of `dispatch.handle`."""
        plan = self._rules.plan(_Facts(self._broker, request))
        now_ms = self._broker.clock.monotonic_ms()
        wait_ms = max(self._muted_until_ms.get(request.origin, 0) - now_ms, 0) + plan.delay_ms
        if plan is NOTHING and not wait_ms:
            return await dispatch.handle(self._broker, request)
        for rule in plan.pauses:
            promise: Promise[None] = Promise()
            self._paused.setdefault(rule.rule_id, []).append(promise)
            await promise
        await self._sleep(wait_ms)
        return await self._serve(request, plan)

    async def _sleep(self, wait_ms: float) -> None:
        if wait_ms:
            promise: Promise[None] = Promise()
            self._broker.scheduler.call_later(wait_ms / 1000, lambda: promise.complete(None))
            await promise

    async def _serve(self, request: Request, plan: FaultPlan) -> Body | None:
        """Carry out the plan."""
        rule = plan.verdict
        effect = rule.spec.effect if rule is not None else None
        size = len(request.body)
        if effect is Effect.DROP_BEFORE:
            raise CloseConnectionError
        if rule is not None and effect is Effect.RESTART and not rule.spec.after_effect:
            await self._end_by_restart(rule)
        altered = _Altered(request, plan.throttle_time_ms)
        if rule is not None and effect is Effect.FAIL:
            body = await self._fail(altered, rule)
        else:
            body = await dispatch.handle(self._broker, altered)
        if effect is Effect.DROP_AFTER:
            raise CloseConnectionError
        if rule is not None and effect is Effect.RESTART:
            await self._end_by_restart(rule)
        return await self._throttle(request, plan, body, size) if plan.throttles else body

    async def _end_by_restart(self, rule: Rule) -> None:
        """Restart the broker: that ends the request, too."""
        self._restart(rule)
        await Promise[None]()

    async def _throttle(self, request: Request, plan: FaultPlan, body: Body | None, request_bytes: int) -> Body | None:
        now_ms = self._broker.clock.monotonic_ms()
        size = request_bytes + parts_size(body or ())
        wait_ms = max(each.sending_delay_ms(size, now_ms) for each in plan.throttles)
        if plan.throttle_time_ms:
            # As in Kafka since KIP-219: the answer is sent at once, and the connection's next request waits.
            self._muted_until_ms[request.origin] = now_ms + wait_ms + plan.throttle_time_ms
            body = _with_throttle_time(request, body, plan.throttle_time_ms)
        await self._sleep(wait_ms)
        return body

    async def _fail(self, request: _Altered, rule: Rule) -> Body | None:
        spec, code = rule.spec, rule.spec.error_code
        if request.api_key in _HAND_WRITTEN:
            if request.api_key == ApiKey.FETCH and code in _SESSION_ERRORS:
                return fetch.encode_response(request.version, fetch.FetchResponse([], error_code=code))
            failing: Any = _FailingBroker(self._broker, rule)
            return await dispatch.handle(failing, request)
        facts = _Facts(self._broker, request)
        message = facts.message()
        if spec.topic is None and spec.partition is None:
            return request.response(**messages.refusal(request.api_key, request.version, message, code, whole=True))
        refused = messages.pick(message, facts._name_of, spec.is_at)
        kept = messages.pick(message, facts._name_of, lambda place: not spec.is_at(place))
        fields = messages.refusal(request.api_key, request.version, refused, code, whole=False)
        if messages.is_empty(kept):
            return request.response(**fields)
        request.reduce(kept, fields)
        return await dispatch.handle(self._broker, request)

    def check_write(self, path: str, _size: int) -> None:
        """Delay a write or let it fail. Raises OSError ENOSPC if a rule makes the disk full."""
        directory = os.path.dirname(path)
        found = _PARTITION.fullmatch(os.path.basename(directory)) if directory != self._broker.logs.log_dir else None
        delay_ms, full = self._rules.write((found[1], int(found[2])) if found else None)
        if delay_ms:
            # As a slow disk does to a broker with one thread: everything waits.
            time.sleep(delay_ms / 1000)
        if full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC) + " (injected by a fault)", path)


def _with_throttle_time(request: Request, body: Body | None, throttle_time_ms: int) -> Body | None:
    """Set the throttle time in an answer of the hand-written codecs; the others have it already."""
    if not body:
        return body
    if request.api_key == ApiKey.FETCH:
        first = bytearray(body[0])  # type: ignore[arg-type]
        _THROTTLE.pack_into(first, 0, throttle_time_ms)
        return [first, *body[1:]]
    if request.api_key == ApiKey.PRODUCE:
        answer = produce.decode_response(request.version, body[0])  # type: ignore[arg-type]
        return [produce.encode_response(request.version, answer._replace(throttle_time_ms=throttle_time_ms))]
    if request.api_key == ApiKey.API_VERSIONS and request.version >= 1 and answered_version(request):
        version = request.version
        listed = apis.decode_response(ApiKey.API_VERSIONS, version, body[0])  # type: ignore[arg-type]
        fields = {"error_code": listed.error_code, "api_keys": listed.api_keys, "throttle_time_ms": throttle_time_ms}
        return [apis.encode_response(apis.response(ApiKey.API_VERSIONS, version, **fields), version)]
    return body

"""Where faults take effect: between a connection and the handlers, and under the log. Runs on the broker's loop.

Theory of operation: while there are rules for requests, `Broker.faults` is an `Injector` and each request goes through
`handle`; while there are rules for the disk, the storage calls `check_write`. Otherwise both are None, and nothing
here runs. A request that is delayed or paused keeps its place on its connection, which handles nothing else meanwhile;
other connections continue. It is served even if its client has disconnected, as Kafka serves its request queue.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import struct
import time
import weakref
from collections.abc import Callable, Iterable
from typing import Any

from sparkonce.broker_lite.faults import messages
from sparkonce.broker_lite.faults.rules import NOTHING, Effect, Facts, FaultPlan, Place, Rule, RuleBook
from sparkonce.broker_lite.node import dispatch
from sparkonce.broker_lite.node.broker import Broker
from sparkonce.broker_lite.node.leader import LedPartition
from sparkonce.broker_lite.node.request import DROP, Body, Request, answered_version
from sparkonce.kafka.protocol import apis, fetch, produce
from sparkonce.kafka.protocol.apis import ApiKey
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError, ProtocolError
from sparkonce.kafka.protocol.fetch import parts_size

logger = logging.getLogger(__name__)

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
    """A request as the handler sees it: perhaps with fewer elements, and with its answer intercepted."""

    __slots__ = ("_extra", "_message", "_throttle_time_ms")

    def __init__(self, request: Request, send: Callable[[Request, Body], None], throttle_time_ms: int) -> None:
        for name in Request.__slots__:
            setattr(self, name, getattr(request, name))
        self._send = send
        self._message: Any = None
        self._extra: dict[str, Any] = {}
        self._throttle_time_ms = throttle_time_ms

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


class Injector:
    """Applies the rules to one broker. `restart` is called when a rule restarts the broker."""

    def __init__(self, broker: Broker, rules: RuleBook, restart: Callable[[Rule], None]) -> None:
        self._broker = broker
        self._rules = rules
        self._restart = restart
        self._paused: dict[int, list[Callable[[], None]]] = {}
        self._muted_until_ms: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()

    def held(self, rule_id: int) -> int:
        """How many requests a pause holds now."""
        return len(self._paused.get(rule_id, ()))

    def release(self, rule_id: int) -> None:
        """Release the requests held by a pause."""
        for resume in self._paused.pop(rule_id, ()):
            resume()

    def unmute(self) -> None:
        """Unmute connections that a throttle has muted."""
        self._muted_until_ms.clear()

    def handle(self, request: Request) -> Body | None:
        """Answer a request in place of `dispatch.handle`."""
        plan = self._rules.plan(_Facts(self._broker, request))
        now_ms = self._broker.clock.monotonic_ms()
        wait_ms = max(self._muted_until_ms.get(request.origin, 0) - now_ms, 0) + plan.delay_ms
        if plan is NOTHING and not wait_ms:
            return dispatch.handle(self._broker, request)
        if not wait_ms and not plan.pauses:
            return self._serve(request, plan)
        request.body = memoryview(bytearray(request.body))  # the connection reuses its read buffer
        self._hold(request, plan, [rule.rule_id for rule in plan.pauses], wait_ms)
        return None

    def _hold(self, request: Request, plan: FaultPlan, pauses: list[int], wait_ms: int) -> None:
        if pauses:
            rest = pauses[1:]
            self._paused.setdefault(pauses[0], []).append(lambda: self._hold(request, plan, rest, wait_ms))
        elif wait_ms:
            self._broker.scheduler.call_later(wait_ms / 1000, lambda: self._hold(request, plan, [], 0))
        else:
            self._serve_later(request, plan)

    def _serve_later(self, request: Request, plan: FaultPlan) -> None:
        try:
            body = self._serve(request, plan)
        except ProtocolError as error:
            self._broker.note_refusal(f"closing connection from {request.client_host}: {error}")
            body = DROP
        except Exception:
            logger.exception("a request from %s failed; closing its connection", request.client_host)
            body = DROP
        if body is not None:
            request.answer(body)

    def _serve(self, request: Request, plan: FaultPlan) -> Body | None:
        """Carry out the plan; None if there is no answer, or a later one."""
        rule = plan.verdict
        effect = rule.spec.effect if rule is not None else None
        if effect is Effect.DROP_BEFORE:
            return DROP
        if rule is not None and effect is Effect.RESTART and not rule.spec.after_effect:
            self._restart(rule)
            return None

        def send_later(_: Request, late: Body) -> None:
            body = self._finish(request, plan, late)
            if body is not None:
                request.answer(body)

        altered = _Altered(request, send_later, plan.throttle_time_ms)
        if rule is not None and effect is Effect.FAIL:
            body = self._fail(altered, rule)
        else:
            body = dispatch.handle(self._broker, altered)
        return self._finish(request, plan, body) if body is not None else None

    def _finish(self, request: Request, plan: FaultPlan, body: Body) -> Body | None:
        """Apply the plan to an answer; None if it is not sent, or not yet."""
        rule = plan.verdict
        if rule is not None and rule.spec.effect is Effect.DROP_AFTER:
            return DROP
        if rule is not None and rule.spec.effect is Effect.RESTART:
            self._restart(rule)
            return None
        if not plan.throttles or body is DROP:
            return body
        now_ms = self._broker.clock.monotonic_ms()
        size = len(request.body) + parts_size(body)
        wait_ms = max(each.sending_delay_ms(size, now_ms) for each in plan.throttles)
        if plan.throttle_time_ms:
            # As in Kafka since KIP-219: the answer is sent at once, and the connection's next request waits.
            self._muted_until_ms[request.origin] = now_ms + wait_ms + plan.throttle_time_ms
            body = _with_throttle_time(request, body, plan.throttle_time_ms)
        if not wait_ms:
            return body
        self._broker.scheduler.call_later(wait_ms / 1000, lambda: request.answer(body))
        return None

    def _fail(self, request: _Altered, rule: Rule) -> Body | None:
        spec, code = rule.spec, rule.spec.error_code
        if request.api_key in _HAND_WRITTEN:
            if request.api_key == ApiKey.FETCH and code in _SESSION_ERRORS:
                return fetch.encode_response(request.version, fetch.FetchResponse([], error_code=code))
            return self._fail_partitions(request, rule)
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
        return dispatch.handle(self._broker, request)

    def _fail_partitions(self, request: Request, rule: Rule) -> Body | None:
        """Let the handler of Produce or Fetch return the error for each partition that matches the rule."""
        broker = self._broker
        leading = broker.leading

        def failing(topic: str, index: int) -> LedPartition:
            if rule.spec.is_at((topic, index)):
                raise KafkaError(ErrorCode(rule.spec.error_code), "injected by a fault")
            return leading(topic, index)

        broker.leading = failing
        try:
            return dispatch.handle(broker, request)
        finally:
            broker.leading = leading

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


def _with_throttle_time(request: Request, body: Body, throttle_time_ms: int) -> Body:
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

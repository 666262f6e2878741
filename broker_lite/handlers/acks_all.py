"""The answers to Produce: at once, or, with acks=all in a cluster, when every partition's records are safe."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from sparkonce.broker_lite.handlers.broker import Broker
from sparkonce.broker_lite.handlers.leader_hints import endpoints_of_leaders, leader_hint
from sparkonce.broker_lite.handlers.request import Body, Request
from sparkonce.broker_lite.protocol import produce
from sparkonce.broker_lite.protocol.errors import ErrorCode


class Unsafe(NamedTuple):
    """A result that counts once what was appended is safe: the one at `place` of its topic's results."""

    results: list[produce.ProducePartitionResult]
    place: int
    topic: str
    last_offset: int


def answer(broker: Broker, request: Request, topics: list[produce.ProduceTopicResult]) -> Body:
    """Encode an answer, with where to find the leaders that it hints at."""
    nodes: Sequence[produce.NodeEndpoint] = ()
    if broker.member is not None:
        hints = [each.current_leader for topic in topics for each in topic.partitions if each.current_leader]
        nodes = endpoints_of_leaders(broker.member.image, broker.member.broker_id, request.endpoint, hints)
    return [produce.encode_response(request.version, produce.ProduceResponse(topics, node_endpoints=nodes))]


def answer_when_safe(
    broker: Broker,
    request: Request,
    topics: list[produce.ProduceTopicResult],
    unsafe: list[Unsafe],
    timeout_ms: int,
) -> Body | None:
    """Answer once all is safe, or cannot become so: at once, if it is already."""
    member = broker.member
    assert member is not None
    left = len(unsafe)
    at_once = True

    def on_safe(of: Unsafe, code: ErrorCode) -> None:
        nonlocal left
        left -= 1
        if code is not ErrorCode.NONE:
            index = of.results[of.place].partition
            hint = leader_hint(broker, of.topic, index) if code is ErrorCode.NOT_LEADER_OR_FOLLOWER else None
            of.results[of.place] = produce.ProducePartitionResult(index, int(code), current_leader=hint)
        if not left and not at_once:
            request.answer(answer(broker, request, topics))

    for each in unsafe:
        key = member.key(each.topic, each.results[each.place].partition)
        member.when_safe(key, each.last_offset, timeout_ms, partial(on_safe, each))
    at_once = False
    request.overlaps = left > 0
    return None if left else answer(broker, request, topics)

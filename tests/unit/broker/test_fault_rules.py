"""Which rule fires for which request, and what a refused request is answered, for every API."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterable
from typing import Any

import pytest

from sparkonce.broker_lite.faults import messages
from sparkonce.broker_lite.faults.rules import NOTHING, Effect, FaultSpec, Place, Rule, RuleBook
from sparkonce.kafka.protocol import apis
from sparkonce.kafka.protocol.apis import APIS, ApiKey
from sparkonce.kafka.protocol.errors import ErrorCode
from tests.cases import each_case
from tests.fuzz import corpus

NOT_COORDINATOR = int(ErrorCode.NOT_COORDINATOR)


class Request:
    def __init__(self, api_key: int = 0, client_id: str = "c", *places: Place, message: Any = None) -> None:
        self.api_key = api_key
        self.client_id = client_id
        self._places = places
        self._message = message

    def places(self) -> Iterable[Place]:
        return self._places

    def message(self) -> Any:
        return self._message


def book(*specs: FaultSpec) -> tuple[RuleBook, list[Rule]]:
    rules = RuleBook(lambda rule: None)
    for number, spec in enumerate(specs):
        rules.add(Rule(number, spec))
    return rules, list(rules.rules)


def fires(spec: FaultSpec, *requests: Request) -> list[bool]:
    rules, _ = book(spec)
    return [rules.plan(request) is not NOTHING for request in requests]


@pytest.mark.parametrize(
    ("nth", "times", "expected"),
    [(1, None, "11111"), (3, 1, "00100"), (1, 2, "11000"), (2, 2, "01100"), (4, None, "00011")],
)
def test_which_matches_are_meant(nth: int, times: int | None, expected: str) -> None:
    spec = FaultSpec(effect=Effect.DROP_AFTER, apis=(0,), nth=nth, times=times)
    # What does not match is not counted.
    interleaved = fires(spec, *[request for _ in range(5) for request in (Request(1), Request(0))])
    assert interleaved == [fired == "1" for each in expected for fired in ("0", each)]


def test_selectors_must_all_be_met() -> None:
    spec = FaultSpec(effect=Effect.PAUSE, apis=(0, 1), topic="t", partition=2, client_id="c")
    met = Request(1, "c", ("s", 2), ("t", 1), ("t", 2))
    assert fires(spec, met, Request(2, "c", ("t", 2)), Request(0, "d", ("t", 2)), Request(0, "c", ("t", 1))) == [
        True,
        False,
        False,
        False,
    ]
    assert fires(spec, Request(0, "c", ("t", None)), Request(0, "c")) == [True, False]


def test_a_predicate_sees_the_decoded_request() -> None:
    spec = FaultSpec(effect=Effect.PAUSE, predicate=lambda message: message == "this")
    assert fires(spec, Request(message="that"), Request(message="this")) == [False, True]


def test_effects_add_up_and_the_oldest_decision_wins() -> None:
    rules, (delay, fail, drop, delay_more) = book(
        FaultSpec(effect=Effect.DELAY, delay_ms=10),
        FaultSpec(effect=Effect.FAIL, error_code=NOT_COORDINATOR, times=1),
        FaultSpec(effect=Effect.DROP_BEFORE),
        FaultSpec(effect=Effect.DELAY, delay_ms=5),
    )
    plan = rules.plan(Request())
    assert (plan.delay_ms, plan.verdict) == (15, fail)
    assert (drop.seen, drop.fired) == (0, 0)
    assert rules.plan(Request()).verdict is drop
    assert [rule.fired for rule in (delay, fail, drop, delay_more)] == [2, 1, 1, 2]


def test_a_rate_is_shared_by_all_that_it_throttles() -> None:
    rule = Rule(0, FaultSpec(effect=Effect.THROTTLE, bytes_per_s=1000))
    assert [rule.sending_delay_ms(100, now_ms) for now_ms in (0, 0, 150, 1000)] == [100, 200, 150, 100]


def test_disk_rules_see_writes_only() -> None:
    rules, (full, slow) = book(
        FaultSpec(effect=Effect.DISK_FULL, topic="t", partition=1, times=1),
        FaultSpec(effect=Effect.SLOW_DISK, delay_ms=7),
    )
    assert rules.plan(Request(0, "c", ("t", 1))) is NOTHING
    assert rules.write(("t", 0)) == (7, False)
    assert rules.write(None) == (7, False)
    assert rules.write(("t", 1)) == (0, True)
    assert rules.write(("t", 1)) == (7, False)
    assert (full.seen, full.fired, slow.fired) == (2, 1, 3)


def test_a_spec_crosses_to_another_process_whole() -> None:
    spec = FaultSpec(effect=Effect.RESTART, apis=(0, 1), topic="t", nth=3, times=2, kill=True, after_effect=True)
    assert FaultSpec.from_json(json.loads(json.dumps(spec.to_json()))) == spec
    with pytest.raises(ValueError, match="a broker in a thread only"):
        FaultSpec(effect=Effect.PAUSE, predicate=bool).to_json()


@pytest.mark.parametrize("wrong", [{"nth": 0}, {"times": 0}, {"delay_ms": -1}])
def test_numbers_that_mean_nothing_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"nth|times"):
        FaultSpec(effect=Effect.DELAY, **wrong)  # type: ignore[arg-type]


GENERATED = [
    (api, version)
    for api in APIS.values()
    if api.codec_module is not None
    for version in range(api.min_version, api.max_version + 1)
]


def codes(element: Any) -> Iterable[int]:
    """Yield every error code in a message, at whatever depth."""
    for field in element._struct.fields.values():
        if not field.for_version_q(element.version):
            continue
        value = getattr(element, field.name)
        if field.name in ("error_code", "partition_error_code"):
            yield value
        elif field.is_struct_array():
            for each in value or ():
                yield from codes(each)


@each_case(("api", "version"), GENERATED, ids=lambda case: f"{case[0].codec_name} v{case[1]}")
@each_case("whole", [True, False], ids=["whole", "elements"])
def test_every_api_can_be_refused(api: apis.Api, version: int, whole: bool) -> None:
    wanted = corpus.message(api, version, random.Random(version))
    fields = messages.refusal(api.key, version, wanted, NOT_COORDINATOR, whole)
    encoded = apis.encode_response(apis.response(api.key, version, **fields), version)
    # Not `decode_response`, which takes any error of ApiVersions to be in version 0.
    answer = apis._decode(apis.response_class(api.key), api.key, version, encoded, sys.maxsize, exact=True)
    told = list(codes(answer))
    assert NOT_COORDINATOR in told
    if whole and "error_code" in answer._struct.fields and api.key != ApiKey.METADATA:
        assert answer.error_code == NOT_COORDINATOR or not answer._struct.fields["error_code"].for_version_q(version)


def test_one_partition_of_a_commit_is_refused_and_the_rest_kept() -> None:
    types = apis.request_class(ApiKey.OFFSET_COMMIT).OffsetCommitRequestTopic
    partitions = [
        types.OffsetCommitRequestPartition(version=8, partition_index=index, committed_offset=5, committed_metadata="")
        for index in range(3)
    ]
    topics = [types(version=8, name=name, partitions=partitions) for name in ("t", "u")]
    wanted = apis.request(ApiKey.OFFSET_COMMIT, 8, group_id="g", topics=topics)
    spec = FaultSpec(effect=Effect.FAIL, topic="t", partition=1)
    names = {each: [p for t, p in messages.places_of(wanted, lambda _: None) if t == each] for each in ("t", "u")}
    assert names == {"t": [0, 1, 2], "u": [0, 1, 2]}
    refused = messages.pick(wanted, lambda _: None, spec.is_at)
    kept = messages.pick(wanted, lambda _: None, lambda place: not spec.is_at(place))
    assert list(messages.places_of(refused, lambda _: None)) == [("t", 1)]
    assert list(messages.places_of(kept, lambda _: None)) == [("t", 0), ("t", 2), ("u", 0), ("u", 1), ("u", 2)]
    assert not messages.is_empty(kept)
    fields = messages.refusal(ApiKey.OFFSET_COMMIT, 8, refused, NOT_COORDINATOR, whole=False)
    (topic,) = fields["topics"]
    assert (topic.name, [(p.partition_index, p.error_code) for p in topic.partitions]) == ("t", [(1, NOT_COORDINATOR)])

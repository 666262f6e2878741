"""Random histories of a correct log show no anomaly; with one fault put in, they show that anomaly and no other."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from random import Random

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from lab.history import AnomalyName, check_history, events_of, judge
from tests.chance import examples
from tests.lab.history.simulation import Object, simulate

seeds = st.integers(0, 2**32 - 1)
sizes = st.integers(1, 100)
READS = ("record_data", "result_row")


def found(events: list[Object]) -> set[AnomalyName]:
    """Which anomalies; polls are not counted, since faults take records out of them."""
    return {a.name for a in check_history(events_of(e for e in events if e["name"] != "records_consumed"))}


def pick(random: Random, choices: list[Object]) -> Object:
    assume(choices)
    return random.choice(choices)


def named(events: list[Object], *names: str) -> list[Object]:
    return [event for event in events if event["name"] in names]


def committed_readers(events: list[Object]) -> set[str]:
    return {e["client"] for e in named(events, "startup_complete") if e.get("isolation_level") == "read_committed"}


def plain_acknowledged(events: list[Object]) -> list[Object]:
    return [e for e in named(events, "producer_send_success") if "transaction" not in e]


def committed_transactions(events: list[Object]) -> set[tuple[str, int]]:
    ends = named(events, "transaction_commit")
    return {(e["client"], e["transaction"]) for e in ends if e["outcome"] == "success"}


def lose_a_record(random: Random, events: list[Object]) -> list[Object]:
    lost = pick(random, plain_acknowledged(events))["value"]
    return [e for e in events if e["name"] not in READS or e["value"] != lost]


def write_a_record_twice(random: Random, events: list[Object]) -> list[Object]:
    twice = pick(random, [e for e in named(events, "record_data") if e["client"] == "final-1"])
    end = max(e["offset"] for e in events if e.get("partition") == twice["partition"] and "offset" in e)
    return [*events, {**twice, "offset": end + 5}]


def write_a_row_twice(random: Random, events: list[Object]) -> list[Object]:
    return [*events, pick(random, named(events, "result_row"))]


def forget_a_row(random: Random, events: list[Object]) -> list[Object]:
    row = pick(random, [e for e in named(events, "result_row") if e["value"].startswith("plain")])
    return [e for e in events if e is not row]


def read_in_another_order(random: Random, events: list[Object]) -> list[Object]:
    reads = [e for e in named(events, "record_data") if e["client"] == "final-1"]
    pairs = [(a, b) for a, b in pairwise(reads) if a["partition"] == b["partition"]]
    assume(pairs)
    one, other = random.choice(pairs)
    return [other if e is one else one if e is other else e for e in events]


def skip_a_record(random: Random, events: list[Object]) -> list[Object]:
    reads = [e for e in named(events, "record_data") if e["client"] == "final-2" and e["value"].startswith("plain")]
    skipped = pick(random, reads)
    return [e for e in events if e is not skipped]


def abort_what_was_committed(random: Random, events: list[Object]) -> list[Object]:
    committed = committed_transactions(events)
    seen = {e["value"] for e in named(events, *READS) if e["client"] in committed_readers(events)}
    transactions = {
        (e["client"], e["transaction"])
        for e in named(events, "producer_send_success")
        if e["value"] in seen and (e["client"], e.get("transaction")) in committed
    }
    chosen = pick(
        random,
        [e for e in named(events, "transaction_commit") if (e["client"], e["transaction"]) in transactions],
    )
    return [{**e, "name": "transaction_abort"} if e is chosen else e for e in events]


def fail_what_was_read(random: Random, events: list[Object]) -> list[Object]:
    failed = pick(random, plain_acknowledged(events))
    error = {**failed, "name": "producer_send_error", "outcome": "failed"}
    return [error if e is failed else e for e in events]


def tear_a_transaction(random: Random, events: list[Object]) -> list[Object]:
    committed = committed_transactions(events)
    parts: dict[tuple[str, int], list[str]] = {}
    for e in named(events, "producer_send_success"):
        if (e["client"], e.get("transaction")) in committed:
            parts.setdefault((e["client"], e["transaction"]), []).append(e["value"])
    several = sorted(values for values in parts.values() if len(values) > 1)
    assume(several)
    torn_off = random.choice(random.choice(several))
    readers = committed_readers(events)
    return [e for e in events if e["name"] not in READS or e["value"] != torn_off or e["client"] not in readers]


def read_another_value(random: Random, events: list[Object]) -> list[Object]:
    other = pick(random, [e for e in named(events, "record_data") if e["client"] == "final-2"])
    return [{**e, "value": "from nowhere"} if e is other else e for e in events]


FAULTS: dict[Callable[[Random, list[Object]], list[Object]], set[AnomalyName]] = {
    lose_a_record: {AnomalyName.LOST_WRITE},
    write_a_record_twice: {AnomalyName.DUPLICATE},
    write_a_row_twice: {AnomalyName.DUPLICATE},
    forget_a_row: {AnomalyName.LOST_WRITE},
    read_in_another_order: {AnomalyName.NON_MONOTONIC_POLL},
    skip_a_record: {AnomalyName.SKIPPED_POLL},
    abort_what_was_committed: {AnomalyName.ABORTED_READ},
    fail_what_was_read: {AnomalyName.ABORTED_READ},
    tear_a_transaction: {AnomalyName.TORN_TRANSACTION},
    read_another_value: {AnomalyName.INCONSISTENT_OFFSETS, AnomalyName.UNWRITTEN_READ},
}


@settings(deadline=None, max_examples=examples(150))
@given(seed=seeds, steps=sizes)
def test_a_correct_log_shows_no_anomaly(seed: int, steps: int) -> None:
    events = simulate(Random(seed), steps)
    assert check_history(events_of(events)) == []
    assert judge(events_of(events)).events == len(events)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
@settings(deadline=None, max_examples=examples(50), suppress_health_check=[HealthCheck.filter_too_much])
@given(seed=seeds, steps=sizes)
def test_a_fault_is_found_for_what_it_is(
    fault: Callable[[Random, list[Object]], list[Object]], seed: int, steps: int
) -> None:
    random = Random(seed)
    assert found(fault(random, simulate(random, steps))) == FAULTS[fault]

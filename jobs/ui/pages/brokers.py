"""The page *Brokers*: leaders, in-sync replicas, the controller, and settings; faults of our own brokers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sparkonce.jobs.ui.kafka.state import BrokerState, ClusterState, PartitionState
from sparkonce.jobs.ui.own_brokers import APIS_NAMED, ERRORS, KINDS, OwnBrokers
from sparkonce.jobs.ui.page import NoSuchThingError, Page, PageRequest, RefusedError
from sparkonce.jobs.ui.site import Site

MAX_UNWELL = 200
"""The number of problematic partitions to list."""


@dataclass(frozen=True, slots=True)
class Row:
    """One broker."""

    broker: BrokerState
    leads: int
    """The number of partitions that it leads."""
    replicas: int
    out_of_sync: int
    is_controller: bool


@dataclass(frozen=True, slots=True)
class ProblemPartition:
    """A partition without leader, or with out-of-sync replicas."""

    topic: str
    partition: PartitionState


def _data(site: Site, _: PageRequest) -> Mapping[str, Any]:
    if site.cluster is None:
        return {"state": None, "own": None}
    state = site.cluster.state()
    return {
        "state": state,
        "rows": _rows(state.found, site.own.states if site.own is not None else ()),
        "unwell": _unwell(state.found)[:MAX_UNWELL],
        "servers": site.cluster.servers,
        "own": site.own,
        "kinds": KINDS,
        "apis": APIS_NAMED,
        "errors": ERRORS,
    }


def _rows(state: ClusterState, own: Iterable[int]) -> list[Row]:
    partitions = [each for topic in state.topics.values() for each in topic.partitions]
    known = {each.broker_id: each for each in state.brokers}
    for missing in {*own, *(number for each in partitions for number in each.replicas)} - known.keys():
        known[missing] = BrokerState(missing, "", 0, None)  # a stopped broker is not described
    return [
        Row(
            broker,
            sum(each.leader_id == number for each in partitions),
            sum(number in each.replicas for each in partitions),
            sum(number in each.replicas and number not in each.in_sync for each in partitions),
            number == state.controller_id,
        )
        for number, broker in sorted(known.items())
    ]


def _unwell(state: ClusterState) -> list[ProblemPartition]:
    return [
        ProblemPartition(topic.name, each)
        for topic in state.topics.values()
        for each in topic.partitions
        if each.leader_id < 0 or each.is_under_replicated
    ]


def _broker(site: Site, asked: PageRequest) -> Mapping[str, Any]:
    state = None if site.cluster is None else site.cluster.state()
    wanted = asked.path["broker"]
    found = (
        None if state is None else next((each for each in state.found.brokers if str(each.broker_id) == wanted), None)
    )
    if site.cluster is None or found is None:
        raise NoSuchThingError(f"There is no broker {wanted} now.")
    return {
        "state": state,
        "broker": found,
        "settings": site.cluster.settings.of_broker(found.broker_id, found.host, found.port),
    }


def _own(site: Site) -> OwnBrokers:
    if site.own is None:
        raise RefusedError("These pages may not disturb a broker: start them with --with-brokers and --allow-faults.")
    return site.own


def _switch_on(site: Site, _: PageRequest, form: Mapping[str, str]) -> str:
    return _own(site).switch_on(_number(form, "broker"), form.get("kind", ""), form)


def _switch_off(site: Site, _: PageRequest, form: Mapping[str, str]) -> str:
    return _own(site).switch_off(_number(form, "number"))


def _kill(site: Site, _: PageRequest, form: Mapping[str, str]) -> str:
    return _own(site).kill(_number(form, "broker"))


def _start(site: Site, _: PageRequest, form: Mapping[str, str]) -> str:
    return _own(site).start(_number(form, "broker"))


def _number(form: Mapping[str, str], name: str) -> int:
    text = form.get(name, "")
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise RefusedError(f"The form names no {name}.")
    return int(text)


BROKERS = Page(
    "/brokers",
    "Brokers",
    "brokers.html",
    _data,
    menu="Brokers",
    actions={"switch-on": _switch_on, "switch-off": _switch_off, "kill": _kill, "start": _start},
)
BROKER = Page("/brokers/{broker}", "Broker", "broker.html", _broker)

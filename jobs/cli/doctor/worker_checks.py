"""Checks of a worker on its own machine: whether compiled code runs, and which brokers and stores it reaches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, field
from typing import Any

from sparkonce.jobs.cli.doctor.findings import Finding, State, wrong
from sparkonce.options import OptionError

_MURMUR2_OF_21 = -973932308 & 0xFFFFFFFF
"""From Kafka's ``UtilsTest.testMurmur2``."""


@dataclass(frozen=True, slots=True)
class Endpoints:
    """The brokers and stores of the command line that every worker must reach."""

    kafka: Mapping[str, str] = field(default_factory=dict, repr=False)
    topics: Sequence[str] = ()
    table: str | None = None
    checkpoint: str | None = None
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)

    def as_document(self) -> dict[str, Any]:
        """Return a document to send to workers, which may lack this class."""
        return asdict(self)


def look(document: Mapping[str, Any]) -> list[tuple[str, str, str, str]]:
    """Return the fields of each finding; checks without a problem have one line each."""
    places = Endpoints(**document)
    found = [*_compiled(), *_reached(places)]
    return [astuple(Finding(each.what, each.found, each.state, each.remedy)) for each in found]


def _compiled() -> Iterator[Finding]:
    try:
        import numpy as np

        from sparkonce.connectors.kafka_sink.kernel import murmur2

        if murmur2(np.frombuffer(b"21", dtype=np.uint8), 0, 2) != _MURMUR2_OF_21:
            yield wrong("machine code", "compiled functions return wrong results", "Reinstall numba and llvmlite there")
            return
    except Exception as error:  # from the compiler, of many kinds
        yield wrong("machine code", f"{type(error).__name__}: {error}", "Reinstall numba and llvmlite there")
        return
    yield Finding("machine code", "compiled functions run")


def _reached(places: Endpoints) -> Iterator[Finding]:
    from sparkonce.jobs.cli.doctor import kafka, stores
    from sparkonce.offset_store.locations import Location

    try:
        if places.kafka:
            yield from _worst("Kafka", "all brokers are reached", list(kafka.examine(places.kafka, places.topics)))
        if places.table is not None:
            found = list(stores.table(Location.parse(places.table.removeprefix("delta:")), places.storage))
            yield from _worst("table", found[-1].found, found)
        if places.checkpoint is not None:
            found = list(stores.checkpoint(Location.parse(places.checkpoint), places.storage))
            yield from _worst("checkpoint", found[-1].found, found)
    except OptionError as error:
        yield wrong("Kafka", error, "Put the file there, or correct the option")


def _worst(what: str, good: str, found: list[Finding]) -> Iterator[Finding]:
    """Return the findings that need attention, or one line if there are none."""
    notable = [each for each in found if each.state is not State.OK]
    yield from notable or [Finding(what, good)]

"""The two brokers under measurement, both running, and their alternating rounds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol, TypeVar

import psutil

from lab.bench.processes import peak_rss_mb
from lab.bench.results import say
from lab.peers import RealKafka
from sparkonce.broker_lite.embedded import EmbeddedBroker

KAFKA = "Apache Kafka"
OURS = "sparkonce"
Figure = TypeVar("Figure")


class Named(Protocol):
    """One side of a comparison."""

    @property
    def name(self) -> str:
        """Its name in the progress."""


Turn = TypeVar("Turn", bound=Named)


@dataclass(frozen=True, slots=True)
class Side:
    """A broker under measurement."""

    name: str
    bootstrap_servers: str
    process: psutil.Process

    def peak_rss_mb(self) -> float:
        """Return the peak resident memory since the start if the system has it, else the current one."""
        return peak_rss_mb(self.process.pid)

    def cpu_s(self) -> float:
        """Return the CPU time of the broker's process since its start."""
        times = self.process.cpu_times()
        return float(times.user + times.system)


def rss_mb(pid: int) -> float:
    """Return a process's current resident memory."""
    return float(psutil.Process(pid).memory_info().rss / 1e6)


@contextmanager
def both() -> Iterator[Sequence[Side]]:
    """Start ours and Kafka, each in a separate process; ours is the first.

    Raises:
        PeerMissingError: if Kafka or a Java is missing.
    """
    say("starting Apache Kafka and our broker")
    with RealKafka() as kafka, EmbeddedBroker(process=True) as ours:
        assert ours.pid is not None
        yield (
            Side(OURS, ours.bootstrap_servers, psutil.Process(ours.pid)),
            Side(KAFKA, kafka.bootstrap_servers, psutil.Process(kafka.pid)),
        )


def in_turn(
    name: str,
    sides: Sequence[Turn],
    rounds: int,
    once: Callable[[Turn, int], Figure],
    tell: Callable[[Figure], str],
    warm_up: bool = True,
) -> list[tuple[Figure, ...]]:
    """Run the sides alternately (A B A B) and return the figures of each, in the order of `sides`.

    ``once`` receives the side and the number of the round; round 0 is the warm-up, and dropped.
    """
    figures: list[list[Figure]] = [[] for _ in sides]
    for number in range(0 if warm_up else 1, rounds + 1):
        for side, found in zip(sides, figures, strict=True):
            figure = once(side, number)
            say(f"{name}: {round_name(number, rounds)}, {side.name} {tell(figure)}")
            if number:
                found.append(figure)
    return [tuple(found) for found in figures]


def records_per_second(figure: float) -> str:
    """Report a speed in the progress."""
    return f"{figure:,.0f} records/s"


def round_name(number: int, rounds: int) -> str:
    """Report the round in the progress."""
    return f"round {number}/{rounds}" if number else "warm-up"

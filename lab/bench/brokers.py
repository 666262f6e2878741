"""The benchmarks of the broker beside Apache Kafka: their list, and the brokers that they run on.

Most share two brokers in separate processes; those that start and kill brokers
come after them, with their own brokers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lab.bench import ready, requests, scale, throughput
from lab.bench.results import Missing, Results
from lab.bench.settings import SHARED_BENCHMARKS, TOOL_BENCHMARKS, Settings
from lab.bench.sides import Side, both
from sparkonce.jobs.shared.jars import PeerMissingError

Shared = Callable[[str, Sequence[Side], Settings, Results], None]
Alone = Callable[[str, Settings, Results], None]

SHARED: dict[str, Shared] = {
    **dict.fromkeys(TOOL_BENCHMARKS, throughput.compare),
    **dict(
        zip(
            SHARED_BENCHMARKS,
            (
                requests.latency,
                requests.small,
                requests.beside_bulk,
                requests.transactions,
                scale.connections,
                scale.groups,
                scale.partitions,
            ),
            strict=True,
        )
    ),
}
ALONE: dict[str, Alone] = {"broker-ready": ready.run_ready, "broker-recovery": ready.run_recovery}


def run(settings: Settings, results: Results) -> None:
    """Run the selected broker benchmarks."""
    shared = [name for name in SHARED if name in settings.names]
    if shared:
        try:
            with both() as sides:
                for name in shared:
                    SHARED[name](name, sides, settings, results)
        except PeerMissingError as error:
            remedy = "its tools are the load: install Java and Maven, or name the folder of its jars in KAFKA_LIBS"
            results.missing.append(Missing("kafka", str(error), remedy))
    for name, alone in ALONE.items():
        if name in settings.names:
            alone(name, settings, results)

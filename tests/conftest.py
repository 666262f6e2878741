"""Fixtures that several folders share: brokers.

`KAFKA` chooses what the connectors' tests run on: `embedded` (the default), `container`, or the address of a broker
that runs already, as `host:port`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

from broker_lite import EmbeddedBroker

# A test judges no times, and a busy machine is slow; what failed is printed so that it can be run again.
settings.register_profile("sparkonce", deadline=None, print_blob=True)
settings.load_profile("sparkonce")


class ByFile(LoadScopeScheduling):  # type: ignore[misc]
    """Gives each process whole files, and one of them all that share the Spark session."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return "spark" if Path(file).parent.name == "spark" else file


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFile:
    """Share the tests out when several processes run them."""
    return ByFile(config, log)


@pytest.fixture
def kafka_broker() -> Iterator[EmbeddedBroker]:
    """An embedded broker in a thread, new for each test, whatever `KAFKA` says: these tests are about this broker."""
    with EmbeddedBroker() as broker:
        yield broker


@pytest.fixture(scope="session")
def kafka() -> Iterator[Any]:
    """The broker that `KAFKA` names, for the whole session; it has `.bootstrap_servers`. Use topics of your own."""
    kind = os.environ.get("KAFKA", "embedded")
    context: Any
    if kind == "embedded":
        context = EmbeddedBroker(process=True, config={"num.partitions": 4})
    elif kind == "container":
        from tests.containers.kafka import start_container

        context = start_container()
    elif ":" in kind:
        context = nullcontext(SimpleNamespace(bootstrap_servers=kind))
    else:
        raise pytest.UsageError(f"KAFKA={kind!r}: expected embedded, container or host:port")
    with context as broker:
        yield broker

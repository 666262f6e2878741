"""Fixtures that several folders share: brokers.

`KAFKA` chooses what the connectors' tests run on: `embedded` (the default), `container`, or the address of a broker
that runs already, as `host:port`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import settings

from broker_lite import EmbeddedBroker

# A test judges no times, and a busy machine is slow; what failed is printed so that it can be run again.
settings.register_profile("sparkonce", deadline=None, print_blob=True)
settings.load_profile("sparkonce")


@pytest.hookimpl(tryfirst=True)  # before xdist looks at the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep together what shares something dear when several processes run the tests: a session, a module's fixtures."""
    for item in items:
        folder = item.path.parent.name
        item.add_marker(pytest.mark.xdist_group(folder if folder == "spark" else item.nodeid.partition("::")[0]))


@pytest.fixture
def kafka_broker() -> Iterator[EmbeddedBroker]:
    """An embedded broker in a thread, new for each test."""
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

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sparkonce import EmbeddedBroker, EmbeddedRegistry


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as made:
        yield made


@pytest.fixture
def registry(broker: EmbeddedBroker, request: pytest.FixtureRequest) -> Iterator[EmbeddedRegistry]:
    """A registry with a topic of its own."""
    with EmbeddedRegistry(broker.bootstrap_servers, topic=f"_schemas_{abs(hash(request.node.nodeid))}") as made:
        yield made

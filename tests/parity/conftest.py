"""The cluster that `KAFKA` names, for the tests that look for what Spark's own suites look for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.parity.support import Cluster


@pytest.fixture(scope="module")
def cluster(kafka: Any, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Use topics of your own: other tests are on it too. An indirect parameter is the streams' handOver."""
    from sparkonce.connectors.kafka_client import client

    before = set(client._shared)
    yield Cluster(kafka.bootstrap_servers, getattr(request, "param", "rows"))
    for key in set(client._shared) - before:  # those of a worker live as long as it, this process goes on
        client._shared.pop(key).close()

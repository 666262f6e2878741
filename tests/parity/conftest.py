"""The cluster that `KAFKA` names, for the tests that look for what Spark's own suites look for."""

from __future__ import annotations

from typing import Any

import pytest

from tests.parity.support import Cluster


@pytest.fixture(scope="module")
def cluster(kafka: Any, request: pytest.FixtureRequest) -> Cluster:
    """Use topics of your own: other tests are on it too. An indirect parameter is the streams' handOver."""
    return Cluster(kafka.bootstrap_servers, getattr(request, "param", "rows"))

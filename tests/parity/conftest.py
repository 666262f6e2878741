"""The cluster that `KAFKA` names, for the tests that look for what Spark's own suites look for."""

from __future__ import annotations

from typing import Any

import pytest

from tests.parity.support import Cluster


@pytest.fixture(scope="module")
def cluster(kafka: Any) -> Cluster:
    """Use topics of your own: other tests are on it too."""
    return Cluster(kafka.bootstrap_servers)

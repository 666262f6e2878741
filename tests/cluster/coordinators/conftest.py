"""One cluster for all tests of coordinators: each begins when all of its brokers are there again, and in sync."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sparkonce import EmbeddedCluster
from tests.cluster.coordinators.support import SETTINGS, make_internal_topics, ready
from tests.cluster.files import check_files


@pytest.fixture(scope="session")
def one_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    folder = tmp_path_factory.mktemp("cluster")
    with EmbeddedCluster(3, folder, process=True, config=SETTINGS) as cluster:
        make_internal_topics(cluster)
        yield cluster
    check_files(folder)


@pytest.fixture
def cluster(one_cluster: EmbeddedCluster) -> EmbeddedCluster:
    ready(one_cluster)
    return one_cluster

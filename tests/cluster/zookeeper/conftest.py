"""A ZooKeeper for the tests of a module; each test uses a chroot of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.zookeeper import ZooKeeper, need_zookeeper


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    need_zookeeper()
    with ZooKeeper(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server

"""What a broker says that does not get into its cluster: where to look, even if there has never been a controller."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sparkonce.broker_lite.cluster.file_coordination import FileCoordination
from sparkonce.broker_lite.config import BrokerConfig
from sparkonce.broker_lite.controller.image import ClusterImage
from sparkonce.broker_lite.server.directory_mode import enter_mode
from sparkonce.broker_lite.server.host import SystemHost
from sparkonce.broker_lite.server.listener import ServerError
from sparkonce.broker_lite.server.membership import ClusterShell
from tests.unit.cluster.shared import SharedStorage


def where_to_look(controller_id: int) -> str:
    image = ClusterImage()
    image.controller_id = controller_id
    coordination = FileCoordination(SharedStorage(), "/shared", 1, 0, 0)
    shell: Any = SimpleNamespace(member=SimpleNamespace(image=image), coordination=coordination)
    return ClusterShell._where_to_look(shell)


def test_a_broker_that_is_not_taken_in_says_whom_to_ask() -> None:
    assert "log of broker 2, the controller" in where_to_look(2)
    assert "no broker can write in /shared" in where_to_look(-1)


def test_a_broker_of_another_cluster_keeps_nothing_of_the_directory(tmp_path: Path) -> None:
    closed = []

    class Host(SystemHost):
        def watch(self, _directories: Sequence[str], _then: Callable[[], None]) -> Any:
            return SimpleNamespace(close=lambda: closed.append(True))

    shared = str(tmp_path / "shared")
    ours, other = (BrokerConfig(metadata_log_dir=shared, cluster_id=each) for each in ("ours", "other"))

    async def start() -> None:
        mode = await enter_mode(ours, Host(), str(tmp_path / "1"), ())
        with pytest.raises(ServerError, match=r"is that of cluster\.id=ours, not other"):
            await enter_mode(other, Host(), str(tmp_path / "2"), ())
        assert closed == [True]
        mode.close()

    asyncio.run(start())

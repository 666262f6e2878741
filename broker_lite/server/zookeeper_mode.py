"""The server's mode in a cluster on ZooKeeper."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from sparkonce.broker_lite.server.listener import ServerError
from sparkonce.broker_lite.server.membership import MemberServerMode
from sparkonce.broker_lite.server.zookeeper import ZooKeeperCoordination

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparkonce.broker_lite.config import BrokerConfig
    from sparkonce.broker_lite.server.host import Host
    from sparkonce.broker_lite.server.listener import Listener

MIN_CONNECT_S: Final = 5.0
"""How long a broker waits for ZooKeeper at its start; or its session timeout, if that is longer."""

logger = logging.getLogger(__name__)


async def enter_mode(
    config: BrokerConfig, host: Host, _data_dir: str, _listeners: Sequence[Listener]
) -> MemberServerMode:
    """See `mode.enter_mode`."""
    connect, timeout_ms = config.zookeeper_connect, config.zookeeper_session_timeout_ms
    assert connect is not None
    loop = asyncio.get_running_loop()
    try:
        client = host.zookeeper(connect, timeout_ms, loop)
    except ModuleNotFoundError as error:
        text = f"zookeeper.connect={connect} needs {error.name}: pip install 'sparkonce[zookeeper]'"
        raise ServerError(text) from error
    monotonic_ms = host.clock.monotonic_ms
    coordination = ZooKeeperCoordination(connect, client, config.node_id, loop, monotonic_ms, host.new_uuid)
    timeout_s = max(timeout_ms / 1000, MIN_CONNECT_S)
    logger.info("broker %d waits for ZooKeeper at %s, for up to %.0f s", config.node_id, connect, timeout_s)
    try:
        cluster_id = await coordination.start(config.cluster_id, timeout_s, create=True)
    except BaseException as error:
        coordination.close()
        if isinstance(error, OSError):
            raise ServerError(f"zookeeper.connect={connect} cannot be used: {error}") from error
        raise
    return MemberServerMode(config, host, coordination, cluster_id)

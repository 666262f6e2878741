"""The server's mode in a cluster on a shared directory (`metadata.log.dir`)."""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import TYPE_CHECKING, Final

from sparkonce.broker_lite.cluster.file_coordination import FileCoordination
from sparkonce.broker_lite.cluster.metadata_log import CLUSTER_FILE, FOLDER
from sparkonce.broker_lite.log import checkpoints
from sparkonce.broker_lite.log.directories import holds_log
from sparkonce.broker_lite.server.listener import ServerError
from sparkonce.broker_lite.server.membership import MemberServerMode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparkonce.broker_lite.config import BrokerConfig
    from sparkonce.broker_lite.server.host import Host
    from sparkonce.broker_lite.server.listener import Listener

LOCK_ATTEMPTS: Final = 100
LOCK_PAUSE_S: Final = 0.01
"""The pause before a lock is tried again: a process that checks whether it is free holds it for a moment."""


async def enter_mode(
    config: BrokerConfig, host: Host, data_dir: str, _listeners: Sequence[Listener]
) -> MemberServerMode:
    """See `mode.enter_mode`.

    Raises:
        ServerError: if a broker of this id runs, the directory cannot be used or is among this broker's own data, or
            it is another cluster's, or Kafka's.
    """
    directory = os.path.abspath(str(config.metadata_log_dir))
    _check(directory, host, data_dir)
    coordination, cluster_id = await _coordinate(config, directory, host)
    return MemberServerMode(config, host, coordination, cluster_id)


def _check(directory: str, host: Host, data_dir: str) -> None:
    shared, own = host.real_path(directory), host.real_path(data_dir)
    if os.path.commonpath([shared, own]) == own:
        where = (
            "is this broker's data directory" if shared == own else f"is in this broker's data directory, {data_dir}"
        )
        text = f"metadata.log.dir={directory} {where}: give another one, that all brokers of the cluster share"
        raise ServerError(text)
    if holds_log(host.storage, f"{directory}/{FOLDER}"):
        text = f"metadata.log.dir={directory} has the metadata log of an Apache Kafka controller: give another one"
        raise ServerError(text)


async def _coordinate(config: BrokerConfig, directory: str, host: Host) -> tuple[FileCoordination, str]:
    """Begin to coordinate through the directory; also returns the id of its cluster."""
    timeout_ms = config.controller_quorum_fetch_timeout_ms
    max_log_bytes = config.metadata_log_max_record_bytes_between_snapshots
    with contextlib.ExitStack() as undo:
        try:
            coordination = FileCoordination(
                host.storage, directory, config.node_id, timeout_ms, max_log_bytes, host.watch
            )
            undo.callback(coordination.close)
            cluster_id = await _cluster_id(host, directory, config.cluster_id)
        except OSError as error:
            text = f"metadata.log.dir={directory} cannot be used ({error}): choose another"
            raise ServerError(text) from error
        if config.cluster_id not in ("", cluster_id):
            text = f"metadata.log.dir={directory} is that of cluster.id={cluster_id}, not {config.cluster_id}"
            raise ServerError(f"{text}: use that, or another directory")
        await _hold_broker(coordination, config.node_id, directory)
        undo.pop_all()
    return coordination, cluster_id


async def _hold_broker(coordination: FileCoordination, node_id: int, directory: str) -> None:
    for _ in range(LOCK_ATTEMPTS):
        if coordination.locks.hold_broker(node_id):
            return
        await asyncio.sleep(LOCK_PAUSE_S)
    raise ServerError(f"a broker with node.id={node_id} runs in the cluster of {directory}: give each its own")


async def _cluster_id(host: Host, directory: str, wanted: str) -> str:
    storage = host.storage
    path = f"{directory}/{CLUSTER_FILE}"
    for _ in range(LOCK_ATTEMPTS):
        try:
            return storage.read(path).decode().strip()
        except FileNotFoundError:
            pass
        try:
            lock = storage.lock(f"{path}.lock")
        except BlockingIOError:
            await asyncio.sleep(LOCK_PAUSE_S)
            continue
        try:
            cluster_id = wanted or checkpoints.encode_uuid(host.new_uuid())
            if CLUSTER_FILE not in storage.list_directory(directory):
                storage.write(path, f"{cluster_id}\n".encode(), durable=True)
        finally:
            lock.release()
    raise OSError(f"{path} is not written by whoever holds its lock")

"""DescribeLogDirs, versions 1 to 5 (KIP-113, KIP-827): the only log directory, and the sizes of its partitions."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from typing import Any

from sparkonce.broker_lite.node.broker import Broker
from sparkonce.broker_lite.node.request import Body, Request
from sparkonce.broker_lite.node.turns import ITEM
from sparkonce.broker_lite.security.acls import Operation
from sparkonce.broker_lite.security.authorizer import authorized_on_cluster
from sparkonce.kafka.protocol import apis
from sparkonce.kafka.protocol.errors import ErrorCode

UNKNOWN_BYTES = -1
ERROR_FROM = 3
SPACE_FROM = 4


async def handle(broker: Broker, request: Request) -> Body:
    """Describe the given partitions, or all; unknown ones are omitted, as in Kafka."""
    wanted, version = request.message(), request.version
    if not authorized_on_cluster(broker, request, Operation.DESCRIBE):
        error = {"error_code": int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)} if version >= ERROR_FROM else {}
        return request.response(results=[], **error)
    asked: Mapping[str, Iterable[int]]
    if wanted.topics is None:
        asked = {topic.name: topic.logs for topic in broker.topics()}
    else:
        asked = {each.topic: each.partitions for each in wanted.topics}
    types = apis.response_class(request.api_key).DescribeLogDirsResult
    described = []
    for name, indexes in asked.items():
        described.append(await _topic(broker, request, types, name, indexes))
    space = dict(zip(("total_bytes", "usable_bytes"), _space(broker.logs.log_dir), strict=True))
    result = types(
        version=version,
        error_code=0,
        log_dir=broker.logs.log_dir,
        topics=[each for each in described if each is not None],
        **(space if version >= SPACE_FROM else {}),
    )
    return request.response(results=[result])


async def _topic(broker: Broker, request: Request, types: Any, name: str, indexes: Iterable[int]) -> Any:
    await broker.turns.spend(request, ITEM)
    topic = broker.topic(name)
    if topic is None:
        return None
    kind, version = types.DescribeLogDirsTopic, request.version
    partitions = []
    for index in indexes:
        await broker.turns.spend(request, ITEM)
        if index in topic.logs:
            size = topic.logs[index].size
            partitions.append(
                kind.DescribeLogDirsPartition(
                    version=version, partition_index=index, partition_size=size, offset_lag=0, is_future_key=False
                )
            )
    return kind(version=version, name=name, partitions=partitions) if partitions else None


def _space(log_dir: str) -> tuple[int, int]:
    """Return size and free space of the disk in bytes; -1 for both if the log is not on a disk."""
    try:
        usage = shutil.disk_usage(log_dir)
    except OSError:
        return UNKNOWN_BYTES, UNKNOWN_BYTES
    return usage.total, usage.free

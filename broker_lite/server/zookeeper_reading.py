"""Loads a cluster from ZooKeeper: its id, its state, and the changes decided meanwhile."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeVar

from sparkonce.broker_lite.cluster import zookeeper_nodes as nodes
from sparkonce.broker_lite.cluster.zookeeper_nodes import Change, Head
from sparkonce.broker_lite.controller.image import ClusterImage
from sparkonce.broker_lite.log.checkpoints import encode_uuid
from sparkonce.broker_lite.server.zookeeper_session import (
    NO_SESSION,
    Node,
    NodeExistsError,
    NoNodeError,
    ZooKeeperSession,
)

READS_AT_ONCE: Final = 200
"""The most nodes requested at once: the signs of life must not wait behind thousands of requests."""

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")


class ChrootError(OSError):
    """A chroot in ZooKeeper is not this cluster's; the message says whose, and what to do."""


class LoadedCluster(NamedTuple):
    """The cluster at the last change of the log."""

    image: ClusterImage
    head: Head
    head_version: int
    found: Mapping[str, Node]
    """The nodes of its state, which may lack a part of a long decision."""

    def missing(self) -> dict[str, bytes | None]:
        """Return the nodes that must be written to complete the state; None removes a node."""
        decided, found = nodes.nodes_of(self.image), self.found
        gone = dict.fromkeys(path for path in found if path not in decided)
        return gone | {path: data for path, data in decided.items() if path not in found or found[path].data != data}


async def find_cluster(
    client: ZooKeeperSession, place: str, wanted_id: str, new_uuid: Callable[[], uuid.UUID], *, create: bool
) -> str:
    """Return the id of the chroot's cluster, made if `create` is set. Raises ChrootError if it is another's."""
    if create:
        await client.make_path("/")
    while True:
        found = await find_cluster_id(client)
        if found is None and not create:
            raise ChrootError("there is no cluster, as it has no /cluster/id")
        if found is None:
            try:
                await client.commit(nodes.first_nodes(wanted_id or encode_uuid(new_uuid())))
            except NodeExistsError:
                if await client.find(nodes.CLUSTER_ID) is None:
                    raise ChrootError(
                        f"it has nodes of something else, and no /cluster/id: {_another(place)}"
                    ) from None
        elif not found:
            raise ChrootError(f"it is that of a cluster of Apache Kafka: {_another(place)}")
        elif wanted_id not in ("", found):
            raise ChrootError(f"it is that of cluster.id={found}, not {wanted_id}: use that, or another chroot")
        else:
            return found


async def find_cluster_id(client: ZooKeeperSession) -> str | None:
    """Return the id of the cluster; empty if it is not of this kind, None if there is none."""
    try:
        return nodes.cluster_id_of((await client.get(nodes.CLUSTER_ID)).data) or ""
    except NoNodeError:
        return None


def _another(place: str) -> str:
    return f"use another chroot, as in {place.partition('/')[0]}/sparkonce"


async def load(client: ZooKeeperSession) -> LoadedCluster:
    """Load the state, and the changes decided meanwhile."""
    while True:
        before = Head.decode((await client.get(nodes.CHANGES)).data)
        found = await read_state(client)
        node = await client.get(nodes.CHANGES)
        head = Head.decode(node.data)
        try:
            changes = await read_changes(client, range(head.first, head.number + 1))
        except NoNodeError:
            continue
        if before.number >= head.first - 1:
            break
    image = nodes.image_of({path: each.data for path, each in found.items()})
    nodes.replay(image, changes)
    image.next_offset = head.next_offset
    image.controller_id, image.controller_epoch = head.controller_id, head.controller_epoch
    if image.terms and image.terms[-1].controller_epoch != head.controller_epoch:
        image.terms = ()  # as after a controller of a former version, which keeps none
    return LoadedCluster(image, head, node.version, found)


async def read_state(client: ZooKeeperSession) -> dict[str, Node]:
    """Return the nodes of the state; the version of inner nodes is unknown."""
    brokers, documents, topics = await asyncio.gather(
        client.children(nodes.REGISTRATIONS), client.children(nodes.DOCUMENTS), client.children(nodes.TOPICS)
    )
    paths = [nodes.PRODUCER_IDS, nodes.DEFAULT_SETTINGS, nodes.CONTROLLER_TERMS]
    paths += (f"{nodes.REGISTRATIONS}/{each}" for each in brokers)
    paths += (f"{nodes.DOCUMENTS}/{each}" for each in documents)
    paths += (f"{nodes.TOPICS}/{each}" for each in topics)
    parents = [f"{nodes.TOPICS}/{each}/partitions" for each in topics]
    indexes = await _all(partial(_if_any, client.children), parents)
    below = {parent: found for parent, found in zip(parents, indexes, strict=True) if found is not None}
    partitions = [f"{parent}/{index}" for parent, found in below.items() for index in found]
    paths += (f"{each}/state" for each in partitions)
    values = await _all(partial(_if_any, client.get), paths)
    read = {path: node for path, node in zip(paths, values, strict=True) if node is not None}
    return read | dict.fromkeys([*below, *partitions], Node(b"", nodes.ANY_VERSION, NO_SESSION))


async def read_changes(client: ZooKeeperSession, numbers: Sequence[int]) -> list[Change]:
    """Return changes of the log. Raises NoNodeError if one of them was already removed."""

    async def read(number: int) -> Change:
        path = nodes.change_path(number)
        return nodes.decode_change(path, (await client.get(path)).data)

    return await _all(read, numbers)


async def _if_any(read: Callable[[str], Awaitable[Answer]], path: str) -> Answer | None:
    try:
        return await read(path)
    except NoNodeError:
        return None


async def _all(read: Callable[[Asked], Awaitable[Answer]], asked: Sequence[Asked]) -> list[Answer]:
    """Return the answers, in order; limits the requests under way."""
    found: list[Answer] = []
    for first in range(0, len(asked), READS_AT_ONCE):
        found += await asyncio.gather(*map(read, asked[first : first + READS_AT_ONCE]))
    return found

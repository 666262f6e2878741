"""`meta.properties`: the cluster and node that a log directory belongs to (Kafka's MetaProperties)."""

from __future__ import annotations

import logging

from sparkonce.broker_lite.log.checkpoints import (
    META_PROPERTIES,
    CheckpointFormatError,
    decode_properties,
    encode_properties,
    encode_uuid,
)
from sparkonce.broker_lite.log.directories import LogDirectoryError, NewUuid
from sparkonce.broker_lite.log.storage import Storage

logger = logging.getLogger(__name__)


def read(content: bytes) -> dict[str, str]:
    """Parse a `meta.properties`, which may lack its `cluster.id`; the node id is in `node.id`, also in old ones.

    Raises:
        CheckpointFormatError: if it is damaged or the node id is missing.
    """
    try:
        lines = [line.strip() for line in content.decode().splitlines()]
    except UnicodeDecodeError:
        raise CheckpointFormatError("it is not UTF-8") from None
    wrong = next((line for line in lines if line and not line.startswith("#") and "=" not in line), None)
    if wrong is not None:
        raise CheckpointFormatError(f"{wrong[:80]!r} is no name=value")
    found = decode_properties(content)
    node = found.get("node.id") or found.get("broker.id", "")  # broker.id: Kafka with ZooKeeper
    if not node.isdecimal():
        raise CheckpointFormatError("it has no node.id" if not node else f"node.id={node[:80]!r}")
    return found | {"node.id": node}


def load_or_write(storage: Storage, log_dir: str, cluster_id: str, node_id: int, new_uuid: NewUuid) -> str:
    """Return the id of a directory's cluster; writes it if the directory has none.

    An empty `cluster_id` means the one found there, or a new one.

    Raises:
        LogDirectoryError: if the file is damaged, or the directory belongs to another cluster or node.
        OSError: if the file can be neither read nor written.
    """
    path = f"{log_dir}/{META_PROPERTIES}"
    try:
        found = read(storage.read(path))
    except CheckpointFormatError as error:
        raise LogDirectoryError(
            f"{path} is damaged ({error}): restore it, or remove it to have a new one written with a new id"
        ) from None
    except FileNotFoundError:
        cluster_id = cluster_id or encode_uuid(new_uuid())
        found = {"version": "1", "cluster.id": cluster_id, "node.id": str(node_id)}
        storage.write(path, encode_properties(found | {"directory.id": encode_uuid(new_uuid())}), durable=True)
        return cluster_id
    for name, wanted in (("cluster.id", cluster_id), ("node.id", str(node_id))):
        if wanted and (found.get(name) or wanted) != wanted:
            raise LogDirectoryError(
                f"{log_dir} belongs to {name}={found[name]}, not {wanted}: use that, or another directory"
            )
    if not found.get("cluster.id"):
        found["cluster.id"] = cluster_id or encode_uuid(new_uuid())
        logger.warning("%s has no cluster.id: it is %s from now on", path, found["cluster.id"])
        storage.write(path, encode_properties(found), durable=True)
    return found["cluster.id"]

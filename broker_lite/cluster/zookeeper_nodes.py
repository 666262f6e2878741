"""A cluster as nodes of a ZooKeeper: paths, contents, and the changes of a decision.

Theory of operation: the state is in nodes as the articles about Kafka draw them, one for each topic and partition. The
log is beside them: each decision is a numbered node under `/changes`, whose own value, the head, has the number of the
last one. A decision is one transaction: it checks the controller's epoch, moves the head from the version that this
controller knows, creates the node of the change, and changes the state. So a controller that has been replaced is
fenced, by the epoch and by every version.

Readers follow the changes. Only the last `RETAINED` are kept: a reader that is further behind reads the state, which is
not consistent while decisions go on, and then applies all kept changes to it. A record has the new state, so applying
one twice does no harm, and the result is the cluster at the last of these changes. By the same rule a decision that is
too long for one transaction may change the rest of the state in further ones. Each of these writes the head once more,
so none counts after one that was lost.

| node | content |
|---|---|
| `/cluster/id` | the cluster's id |
| `/controller` | ephemeral: the controller's broker id |
| `/controller_epoch` | the number of elections |
| `/controller_terms` | where the terms of the last controllers begin in the log |
| `/brokers/ids/N` | ephemeral: broker N is alive, and its address |
| `/brokers/registrations/N` | broker N as the controller knows it: its epoch, and whether it is fenced |
| `/brokers/topics/T` | a topic's id and settings |
| `/brokers/topics/T/partitions/P/state` | a partition's replicas, in-sync set, leader and epochs |
| `/config/brokers/<default>`, `/config/documents/D` | settings of all brokers; access control lists and the like |
| `/latest_producer_id_block` | producer ids below this one are assigned |
| `/changes`, `/changes/M` | the head of the log; its changes |
"""

from __future__ import annotations

import json
import re
import uuid
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from sparkonce.broker_lite.cluster.record_format import (
    MetadataFormatError,
    decode,
    encode_record,
    plain_terms,
    read_terms,
)
from sparkonce.broker_lite.controller.image import BrokerImage, ClusterImage, TopicImage
from sparkonce.broker_lite.controller.records import (
    NO_LEADER,
    BrokerChanged,
    BrokerRegistered,
    ControllerElected,
    DefaultSettingsChanged,
    DocumentChanged,
    MetadataRecord,
    PartitionChanged,
    PartitionState,
    ProducerIdsAllocated,
    TopicCreated,
    TopicDeleted,
    TopicSettingsChanged,
)

FORMAT: Final = "sparkonce 1"
"""The beginning of `/cluster/id`, to reject the nodes of other systems."""
RETAINED: Final = 100
"""How many changes are kept for readers."""
PLAIN_BYTES: Final = 64 << 10
"""Longer changes are compressed."""
MAX_TRANSACTION_BYTES: Final = 512 << 10
"""The approximate size limit of a transaction: half of ZooKeeper's (`jute.maxbuffer`)."""
MAX_CHANGE_BYTES: Final = 900 << 10
"""The size limit of a change, which must fit into one node."""
ANY_VERSION: Final = -1
_OPERATION_BYTES: Final = 64
"""The size of an operation without its path and value."""

CLUSTER_ID: Final = "/cluster/id"
CONTROLLER: Final = "/controller"
CONTROLLER_EPOCH: Final = "/controller_epoch"
CONTROLLER_TERMS: Final = "/controller_terms"
BROKER_IDS: Final = "/brokers/ids"
REGISTRATIONS: Final = "/brokers/registrations"
TOPICS: Final = "/brokers/topics"
CHANGES: Final = "/changes"
DOCUMENTS: Final = "/config/documents"
DEFAULT_SETTINGS: Final = "/config/brokers/<default>"
PRODUCER_IDS: Final = "/latest_producer_id_block"
OF_TOPIC = (TopicDeleted, TopicSettingsChanged, PartitionChanged)
_STATE: Final = re.compile(rf"{TOPICS}/([^/]+)/partitions/(\d+)/state")
_TOPIC: Final = re.compile(rf"{TOPICS}/([^/]+)")


class Create(NamedTuple):
    """Create a node."""

    path: str
    data: bytes = b""
    ephemeral: bool = False


class SetData(NamedTuple):
    """Change a node with this version."""

    path: str
    data: bytes
    version: int


class Delete(NamedTuple):
    """Remove a node with this version, or `ANY_VERSION`."""

    path: str
    version: int


class Check(NamedTuple):
    """Fail, and the whole transaction with it, unless a node has this version."""

    path: str
    version: int


Operation = Create | SetData | Delete | Check


class Head(NamedTuple):
    """The end of the log."""

    number: int = 0
    """The number of the last change; 0 if there is none."""
    next_offset: int = 0
    controller_id: int = NO_LEADER
    controller_epoch: int = -1

    @property
    def first(self) -> int:
        """The number of the first change that is still kept."""
        return max(1, self.number - RETAINED + 1)

    def encode(self) -> bytes:
        """Return the value of `/changes`."""
        return _json({_camel(name): value for name, value in self._asdict().items()})

    @classmethod
    def decode(cls, data: bytes) -> Head:
        """Parse the value of `/changes`. Raises MetadataFormatError if it is invalid."""
        found = _document(CHANGES, data)
        return cls(*(_number(CHANGES, found, _camel(name)) for name in cls._fields))


class Change(NamedTuple):
    """One decision."""

    base_offset: int
    records: list[MetadataRecord]


def first_nodes(cluster_id: str) -> list[Operation]:
    """Return the operations that create an empty cluster."""
    parents = ("/brokers", BROKER_IDS, REGISTRATIONS, TOPICS, "/cluster", "/config", "/config/brokers", DOCUMENTS)
    return [
        *map(Create, parents),
        Create(CHANGES, Head().encode()),
        Create(CONTROLLER_EPOCH, b"0"),
        Create(CLUSTER_ID, _json({"id": cluster_id, "format": FORMAT})),
    ]


def cluster_id_of(data: bytes) -> str | None:
    """Return the id in a `/cluster/id`; None if it is another system's, such as Apache Kafka's."""
    try:
        found = _document(CLUSTER_ID, data)
    except MetadataFormatError:
        return None
    return str(found["id"]) if found.get("format") == FORMAT and found.get("id") else None


def epoch_of(data: bytes) -> int:
    """Return the epoch in a `/controller_epoch`. Raises MetadataFormatError if it is invalid."""
    if not data.isdigit():
        raise MetadataFormatError(f"{CONTROLLER_EPOCH} is {data[:80]!r}, and no number")
    return int(data)


def change_path(number: int) -> str:
    """Return the path of a change."""
    return f"{CHANGES}/{number:010d}"


def encode_change(epoch: int, base_offset: int, records: Sequence[MetadataRecord]) -> bytes:
    """Return the value of a change's node: a line with its position, and one for each record."""
    head = _json({"controllerEpoch": epoch, "baseOffset": base_offset})
    data = b"\n".join([head, *map(encode_record, records)])
    return data if len(data) <= PLAIN_BYTES else zlib.compress(data)


def decode_change(path: str, data: bytes) -> Change:
    """Parse a change. Raises MetadataFormatError if it is invalid."""
    if not data.startswith(b"{"):
        try:
            data = zlib.decompress(data)
        except zlib.error as error:
            raise MetadataFormatError(f"{path}: {error}") from error
    head, *lines = data.split(b"\n")
    records = [each for line in lines if not isinstance(each := decode(line), ClusterImage)]
    return Change(_number(path, _document(path, head), "baseOffset"), records)


class StateNodes:
    """The nodes of the state, as the controller knows them."""

    def __init__(self, versions: dict[str, int], image: ClusterImage) -> None:
        """Begin with their versions: `ANY_VERSION` for inner nodes.

        The image is the controller's own, and ahead of the nodes by its current decision.
        """
        self._versions = versions
        self._image = image
        self._paths = {topic.topic_id: set(_of_topic(topic)) for topic in image.topics.values()}

    def following(self, records: Iterable[MetadataRecord]) -> list[Operation]:
        """Return the operations for records that the image already has."""
        wanted: dict[str, bytes | None] = {}
        for record in records:
            wanted |= self._after(record)
        return self.becoming(wanted)

    def becoming(self, wanted: Mapping[str, bytes | None]) -> list[Operation]:
        """Return the operations that set nodes to these values; None removes one. Parents come first, and go last."""
        made: list[Operation] = []
        gone: list[Operation] = []
        for path in sorted(wanted):
            data, version = wanted[path], self._versions.get(path)
            if data is None:
                if version is not None:
                    gone.append(Delete(path, self._versions.pop(path)))
            elif version is None:
                self._versions[path] = 0
                made.append(Create(path, data))
            else:
                self._versions[path] = version if version == ANY_VERSION else version + 1
                made.append(SetData(path, data, version))
        return [*made, *reversed(gone)]

    def _after(self, record: MetadataRecord) -> Mapping[str, bytes | None]:
        image = self._image
        match record:
            case BrokerRegistered() | BrokerChanged():
                return _of_broker(image.brokers[record.broker_id])
            case TopicCreated():
                created = _of_topic(TopicImage(record.name, record.topic_id, dict(record.settings)))
                self._paths[record.topic_id] = set(created)
                return created
            case TopicDeleted():
                return dict.fromkeys(self._paths.pop(record.topic_id))
            case TopicSettingsChanged():
                found = image.topics.get(record.topic_id)
                return {} if found is None else _of_settings(found)
            case PartitionChanged():
                topic = image.topics.get(record.topic_id)
                if topic is None:  # deleted by the same decision
                    return {}
                changed = _of_partition(topic.name, record.partition, record.state)
                known = self._paths[record.topic_id]
                new = {path: data for path, data in changed.items() if data or path not in known}
                known.update(changed)
                return new
            case ProducerIdsAllocated():
                return _of_producer_ids(record.next_producer_id)
            case DefaultSettingsChanged():
                return _of_default_settings(image)
            case DocumentChanged():
                return {f"{DOCUMENTS}/{record.name}": record.text.encode()}
            case ControllerElected():
                return _of_terms(image)
        return {}


def nodes_of(image: ClusterImage) -> dict[str, bytes]:
    """Return all nodes of the state, and their values."""
    found = _of_producer_ids(image.next_producer_id) | _of_default_settings(image) | _of_terms(image)
    for broker in image.brokers.values():
        found |= _of_broker(broker)
    for topic in image.topics.values():
        found |= _of_topic(topic)
    return found | {f"{DOCUMENTS}/{name}": text.encode() for name, text in image.documents.items()}


def image_of(nodes: Mapping[str, bytes]) -> ClusterImage:
    """Return the cluster from its nodes, which may be inconsistent. Raises MetadataFormatError if one is invalid."""
    image = ClusterImage()
    for path in sorted(nodes):  # a topic comes before its partitions
        try:
            _read_node(image, path, nodes[path])
        except (KeyError, TypeError, ValueError) as error:
            raise MetadataFormatError(f"{path} is not what a controller of ours wrote: {error!r}") from error
    for topic in image.topics.values():
        in_order = sorted(topic.partitions.items())
        topic.partitions.clear()
        topic.partitions.update(in_order)
    return image


def _read_node(image: ClusterImage, path: str, data: bytes) -> None:
    if path == PRODUCER_IDS:
        image.next_producer_id = _number(path, _document(path, data), "nextProducerId")
    elif path == DEFAULT_SETTINGS:
        image.default_settings = _document(path, data)["settings"]
    elif path == CONTROLLER_TERMS:
        image.terms = read_terms(_document(path, data)["terms"])
    elif path.startswith(f"{DOCUMENTS}/"):
        image.documents[path.removeprefix(f"{DOCUMENTS}/")] = data.decode()
    elif path.startswith(f"{REGISTRATIONS}/"):
        broker = _read_broker(_document(path, data))
        image.brokers[broker.broker_id] = broker
    elif found := _STATE.fullmatch(path):
        topic = image.topic(found[1])
        if topic is not None:
            topic.partitions[int(found[2])] = _read_state(_document(path, data))
    elif found := _TOPIC.fullmatch(path):
        document = _document(path, data)
        topic_id = uuid.UUID(document["topicId"])
        image.topics[topic_id] = TopicImage(found[1], topic_id, dict(document["settings"]))
        image.topic_ids[found[1]] = topic_id


def replay(image: ClusterImage, changes: Iterable[Change]) -> None:
    """Apply changes, in order, to an image that may be later than some of them, and so lack deleted topics."""
    for change in changes:
        image.next_offset = change.base_offset
        for record in change.records:
            if isinstance(record, OF_TOPIC) and record.topic_id not in image.topics:
                image.next_offset += 1
            else:
                image.apply(record)


def transactions(
    check: Check, head: SetData, log: Sequence[Operation], state: Sequence[Operation]
) -> list[list[Operation]]:
    """Divide a decision's operations into transactions.

    Each of them checks the controller's epoch, and sets the head of the log, at the version that the one before it
    has left. Operations on the log are in the first one, whatever its size; it commits the decision as a whole. Those
    on the state follow, in parts of about `MAX_TRANSACTION_BYTES`.
    """
    parts: list[list[Operation]] = [[check, head, *log]]
    size = sum(map(_size, parts[0]))
    for operation in state:
        size += _size(operation)
        if size > MAX_TRANSACTION_BYTES:
            parts.append([check, head._replace(version=head.version + len(parts))])
            size = _size(operation)
        parts[-1].append(operation)
    return parts


def _size(operation: Operation) -> int:
    data = operation.data if isinstance(operation, Create | SetData) else b""
    return len(operation.path) + len(data) + _OPERATION_BYTES


def _of_broker(broker: BrokerImage) -> dict[str, bytes]:
    document = {
        "brokerId": broker.broker_id,
        "brokerEpoch": broker.broker_epoch,
        "incarnation": str(broker.incarnation),
        "host": broker.host,
        "port": broker.port,
        "fenced": broker.fenced,
        "shuttingDown": broker.shutting_down,
        "listeners": broker.listeners,
    }
    return {f"{REGISTRATIONS}/{broker.broker_id}": _json(document)}


def _read_broker(document: Mapping[str, Any]) -> BrokerImage:
    return BrokerImage(
        document["brokerId"],
        document["brokerEpoch"],
        uuid.UUID(document["incarnation"]),
        document["host"],
        document["port"],
        document["fenced"],
        document["shuttingDown"],
        tuple((name, host, port) for name, host, port in document["listeners"]),
    )


def _of_settings(topic: TopicImage) -> dict[str, bytes]:
    return {f"{TOPICS}/{topic.name}": _json({"topicId": str(topic.topic_id), "settings": topic.settings})}


def _of_topic(topic: TopicImage) -> dict[str, bytes]:
    found = _of_settings(topic) | {f"{TOPICS}/{topic.name}/partitions": b""}
    for index, state in topic.partitions.items():
        found |= _of_partition(topic.name, index, state)
    return found


def _of_partition(topic: str, index: int, state: PartitionState) -> dict[str, bytes]:
    parent = f"{TOPICS}/{topic}/partitions/{index}"
    return {parent: b"", f"{parent}/state": _json({_camel(name): value for name, value in state._asdict().items()})}


def _read_state(document: Mapping[str, Any]) -> PartitionState:
    values = (document[_camel(name)] for name in PartitionState._fields)
    return PartitionState._make(tuple(each) if isinstance(each, list) else each for each in values)


def _of_producer_ids(next_producer_id: int) -> dict[str, bytes]:
    return {PRODUCER_IDS: _json({"nextProducerId": next_producer_id})}


def _of_default_settings(image: ClusterImage) -> dict[str, bytes]:
    return {DEFAULT_SETTINGS: _json({"settings": image.default_settings})}


def _of_terms(image: ClusterImage) -> dict[str, bytes]:
    return {CONTROLLER_TERMS: _json({"terms": plain_terms(image.terms)})}


def _document(path: str, data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except ValueError as error:
        raise MetadataFormatError(f"{path} is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise MetadataFormatError(f"{path} is no JSON object")
    return found


def _number(path: str, document: Mapping[str, Any], name: str) -> int:
    found = document.get(name)
    if type(found) is not int:
        raise MetadataFormatError(f"{path} has {name}={found!r}, and no number")
    return found


def _json(document: Mapping[str, object]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(each.capitalize() for each in others)

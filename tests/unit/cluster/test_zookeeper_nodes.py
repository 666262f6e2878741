"""The nodes of a cluster follow its controller's decisions, and who reads them meanwhile gets the same cluster."""

from __future__ import annotations

import random
import uuid

import pytest

from sparkonce.broker_lite.cluster.record_format import MetadataFormatError
from sparkonce.broker_lite.cluster.zookeeper_nodes import (
    ANY_VERSION,
    MAX_TRANSACTION_BYTES,
    Change,
    Check,
    Create,
    Delete,
    Head,
    Operation,
    SetData,
    StateNodes,
    cluster_id_of,
    decode_change,
    encode_change,
    epoch_of,
    first_nodes,
    image_of,
    nodes_of,
    replay,
    transactions,
)
from sparkonce.broker_lite.controller.controller import Controller, ControllerSettings
from sparkonce.broker_lite.controller.image import ClusterImage
from sparkonce.broker_lite.controller.records import NO_BROKER_EPOCH, ControllerElected, MetadataRecord
from sparkonce.kafka.protocol.errors import KafkaError
from tests.cases import each_case


class Tree:
    """Nodes with versions, as ZooKeeper has them."""

    def __init__(self) -> None:
        self.data: dict[str, bytes] = {}
        self.versions: dict[str, int] = {}

    def do(self, operations: list[Operation]) -> None:
        for each in operations:
            parent = each.path.rpartition("/")[0]
            match each:
                case Create():
                    assert each.path not in self.data
                    assert parent in self.data or parent.count("/") < 3, f"{parent} is made first"
                    self.data[each.path], self.versions[each.path] = each.data, 0
                case SetData():
                    assert each.version in (ANY_VERSION, self.versions[each.path])
                    self.data[each.path] = each.data
                    self.versions[each.path] += 1
                case Delete():
                    assert each.version in (ANY_VERSION, self.versions[each.path])
                    assert not any(path.startswith(f"{each.path}/") for path in self.data), "it has others below it"
                    del self.data[each.path], self.versions[each.path]


class World:
    """A controller that decides at random, and the nodes."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.controller = Controller(ClusterImage(), ControllerSettings(topic_defaults={"min.insync.replicas": "1"}), 0)
        self.image = self.controller.image
        self.tree = Tree()
        self.state = StateNodes({}, self.image)
        self.tree.do(self.state.becoming(dict(nodes_of(self.image))))
        self.changes: list[Change] = []
        self._made = 0

    def decide(self) -> None:
        """Let the controller decide something, and write it."""
        base_offset = self.image.next_offset
        try:
            records = self._decision()
        except KafkaError:
            return
        self.changes.append(Change(base_offset, list(records)))
        self.tree.do(self.state.following(records))

    def _decision(self) -> list[MetadataRecord]:
        chance, controller, image = self.chance, self.controller, self.image
        topics = sorted(image.topics, key=str)
        match chance.randrange(9):
            case 0 | 1:
                name = f"t{chance.randrange(4)}"
                self._made += 1
                return controller.create_topic(name, uuid.UUID(int=self._made), chance.randint(1, 4), 2, {"a": "b"})
            case 2 if topics:
                topic_id = chance.choice(topics)
                return controller.delete_topic(topic_id)
            case 3 if topics:
                topic = image.topics[chance.choice(topics)]
                return controller.create_partitions(topic.name, len(topic.partitions) + 1)
            case 4 if topics:
                topic = image.topics[chance.choice(topics)]
                return controller.change_settings(topic.name, {"c": str(chance.random())})
            case 5 if image.brokers:
                return controller.fence([chance.choice(sorted(image.brokers))])
            case 6:
                return controller.change_document("acls", str(chance.random()))
            case 7:
                elected = ControllerElected(
                    1, image.controller_epoch + 1, uuid.UUID(int=chance.getrandbits(64)), image.next_offset
                )
                image.apply(elected)
                return [elected]
            case _:
                broker_id = chance.randint(1, 3)
                registered = controller.fence([broker_id]) if broker_id in image.brokers else []
                more, epoch = controller.register(
                    broker_id, uuid.UUID(int=chance.getrandbits(64)), "h", 1, NO_BROKER_EPOCH, 0, (("L", "h", 1),)
                )
                heard, _ = controller.heartbeat(broker_id, epoch, 1 << 40, False, 0)
                return registered + more + heard


def of_log(image: ClusterImage) -> ClusterImage:
    """Take out of an image what the head of the log has of it."""
    image.next_offset, image.controller_id, image.controller_epoch = 0, -1, -1
    return image


@each_case("seed", range(20))
def test_the_nodes_are_the_cluster_after_every_decision(seed: int) -> None:
    world = World(seed)
    for _ in range(60):
        world.decide()
        assert world.tree.data == nodes_of(world.image)
    again = image_of(world.tree.data)
    expected = image_of(nodes_of(world.image))
    assert of_log(again) == of_log(expected)
    assert set(again.topic_ids) == set(world.image.topic_ids)


@each_case("seed", range(20))
def test_who_reads_the_nodes_one_by_one_while_they_change_gets_the_cluster_by_the_changes(seed: int) -> None:
    world = World(seed)
    for _ in range(30):
        world.decide()
    first = len(world.changes)
    kept = world.chance.randrange(10)
    seen: dict[str, bytes] = {}
    unread = set(world.tree.data)
    while unread:
        for path in world.chance.sample(sorted(unread), min(3, len(unread))):
            unread.discard(path)
            if path in world.tree.data:
                seen[path] = world.tree.data[path]
        world.decide()
        unread |= {path for path in world.tree.data if path not in seen and world.chance.random() < 0.05}
    image = image_of(seen)
    replay(image, world.changes[max(first - kept, 0) :])
    assert image.next_offset == world.image.next_offset
    assert of_log(image) == of_log(world.image)


def test_changes_are_read_as_they_were_written_however_long() -> None:
    short: list[MetadataRecord] = [ControllerElected(1, 2)]
    for records in (short, short * 20_000):
        data = encode_change(2, 7, records)
        assert len(data) < MAX_TRANSACTION_BYTES
        assert decode_change("/changes/1", data) == Change(7, records)
    for wrong in (b"rubbish", b'{"baseOffset":1}\nrubbish', b"{"):
        with pytest.raises(MetadataFormatError):
            decode_change("/changes/1", wrong)


def test_the_head_says_which_changes_are_kept() -> None:
    assert Head().first == 1
    head = Head(250, 1000, 3, 9)
    assert Head.decode(head.encode()) == head
    assert head.first == 151


def test_a_long_decision_is_several_transactions_and_counts_by_the_first() -> None:
    check = Check("/controller_epoch", 7)
    head = SetData("/changes", b"", 1)
    log: list[Operation] = [Create("/changes/2", b"x" * MAX_TRANSACTION_BYTES), Delete("/changes/1", ANY_VERSION)]
    state: list[Operation] = [Create(f"/n{number}", b"x" * 100_000) for number in range(20)]
    first, *others = transactions(check, head, log, state)
    assert first == [check, head, *log]
    assert len(others) > 2
    for version, part in enumerate(others, 2):
        assert part[:2] == [check, SetData("/changes", b"", version)], "it follows the one before"
    assert [each for part in others for each in part[2:]] == state
    assert transactions(check, head, log[1:], state[:2]) == [[check, head, log[1], *state[:2]]]


def test_a_place_says_whose_it_is() -> None:
    created = {each.path: each.data for each in first_nodes("abc") if isinstance(each, Create)}
    assert cluster_id_of(created["/cluster/id"]) == "abc"
    assert cluster_id_of(b'{"version":"1","id":"abc"}') is None
    assert cluster_id_of(b"rubbish") is None
    assert cluster_id_of(b'{"format":"sparkonce 1"}') is None
    with pytest.raises(MetadataFormatError, match="/brokers/topics/t"):
        image_of({"/brokers/topics/t": b'{"version":3}'})


@pytest.mark.parametrize("wrong", [b"", b"rubbish", b"[]", b"{}", b'{"number":"1"}', b'{"nextProducerId":true}'])
def test_what_no_controller_has_written_is_said_to_be_that(wrong: bytes) -> None:
    """Not an error of ours: a broker says which node it is, and waits."""
    with pytest.raises(MetadataFormatError, match="/changes"):
        Head.decode(wrong)
    with pytest.raises(MetadataFormatError, match="/changes/1"):
        decode_change("/changes/1", wrong)
    with pytest.raises(MetadataFormatError, match="/controller_epoch"):
        epoch_of(wrong)
    with pytest.raises(MetadataFormatError, match="/latest_producer_id_block"):
        image_of({"/latest_producer_id_block": wrong})

"""Groups whose coordinator changes: what is kept, who is told what, and when."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator
from contextlib import contextmanager

import pytest

from sparkonce.broker_lite.coordinators.offsets import OFFSETS_TOPIC, CommittedOffset, OffsetKey, encode, partition_of
from sparkonce.broker_lite.log.partition_log import PartitionLog
from sparkonce.broker_lite.node.clock import Clock
from sparkonce.broker_lite.node.coordinated import LOAD_RETRY_S, SAFE_TIMEOUT_MS
from sparkonce.broker_lite.protocol.apis import ApiKey
from sparkonce.broker_lite.protocol.errors import ErrorCode
from sparkonce.broker_lite.protocol.primitives import ZERO_UUID
from sparkonce.broker_lite.protocol.records import encode_batch
from sparkonce.broker_lite.sim.disk import SimulatedFile
from tests.unit.broker.coordinator_cluster import Client, Cluster, error_of
from tests.unit.broker.test_transaction_coordinator import World

GROUP = "g"


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster(World(), group_initial_rebalance_delay_ms=0)
    cluster.create_topic("t", [1])
    cluster.create_topic(OFFSETS_TOPIC, [1])
    cluster.run()
    return cluster


def committed(cluster: Cluster, broker_id: int) -> int:
    answer = cluster.client(broker_id).committed(GROUP)
    assert error_of(answer) is ErrorCode.NONE
    offset: int = answer.groups[0].topics[0].partitions[0].committed_offset
    return offset


def test_a_commit_is_acknowledged_when_it_is_safe(cluster: Cluster) -> None:
    client = cluster.client(1)
    assert client.commit(GROUP, 5) is None
    assert not client.later
    cluster.run()
    assert error_of(client.later.pop()) is ErrorCode.NONE
    assert committed(cluster, 1) == 5


def test_nobody_reads_what_could_be_lost(cluster: Cluster) -> None:
    writer, reader = cluster.client(1), cluster.client(1)
    writer.commit(GROUP, 5)
    assert reader.committed(GROUP) is None
    cluster.run()
    assert error_of(reader.later.pop()) is ErrorCode.NONE


def test_others_say_that_they_do_not_coordinate(cluster: Cluster) -> None:
    assert error_of(cluster.client(2).commit(GROUP, 5)) is ErrorCode.NOT_COORDINATOR
    assert error_of(cluster.client(2).committed(GROUP)) is ErrorCode.NOT_COORDINATOR
    other = cluster.client(2)
    assert other.join(GROUP) is None
    assert error_of(other.later.pop()) is ErrorCode.NOT_COORDINATOR
    described = other.ask(ApiKey.DESCRIBE_GROUPS, 5, groups=[GROUP])
    assert error_of(described) is ErrorCode.NOT_COORDINATOR
    assert not other.ask(ApiKey.LIST_GROUPS, 4, states_filter=[]).groups
    deleted = other.ask(ApiKey.DELETE_GROUPS, 2, groups_names=[GROUP])
    assert ErrorCode(deleted.results[0].error_code) is ErrorCode.NOT_COORDINATOR


def test_clients_are_told_who_leads_the_groups_partition(cluster: Cluster) -> None:
    for asked in (1, 2, 3):
        found = cluster.client(asked).ask(ApiKey.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=[GROUP])
        assert (found.coordinators[0].node_id, found.coordinators[0].port) == (1, 9092)
    cluster.elect(OFFSETS_TOPIC, 0, 3)
    found = cluster.client(2).ask(ApiKey.FIND_COORDINATOR, 3, key_type=0, key=GROUP)
    assert (found.error_code, found.node_id, found.port) == (0, 3, 9094)


def test_a_partition_that_cannot_be_read_back_holds_up_no_other_and_is_tried_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = Cluster(World())
    cluster.create_topic("t", [1])
    cluster.create_topic(OFFSETS_TOPIC, [1, 1])
    cluster.run()
    names = {partition_of(name, 2): name for name in "abcdef"}
    for name in names.values():
        cluster.client(1).commit(name, 5)
    cluster.run()
    topic = cluster.brokers[2].topic(OFFSETS_TOPIC)
    assert topic is not None
    with damaged(topic.logs[0]):
        for index in (0, 1):
            cluster.elect(OFFSETS_TOPIC, index, 2)
        cluster.run()
        cluster.world.pass_time(5 * LOAD_RETRY_S * 1000)
        partitions = cluster.brokers[2].groups.partitions
        assert partitions.error_of(names[0]) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert partitions.error_of(names[1]) is ErrorCode.NONE
        listed = cluster.client(2).ask(ApiKey.LIST_GROUPS, 4, states_filter=[])
        assert (listed.error_code, [each.group_id for each in listed.groups]) == (ErrorCode.NONE, [names[1]])
    assert f"{OFFSETS_TOPIC}-0 could not be read back" in caplog.text
    cluster.world.pass_time(LOAD_RETRY_S * 1000)
    for name in names.values():
        assert cluster.brokers[2].groups.offsets.of_group(name)[("t", 0)].offset == 5


@contextmanager
def damaged(log: PartitionLog) -> Iterator[None]:
    """Let the length of a log's first batch be one that cannot be."""
    file = log.segments[0].file
    assert isinstance(file, SimulatedFile)
    data = file._content.data
    length = bytes(data[8:12])
    data[8:12] = bytes(4)
    yield
    data[8:12] = length


def test_a_mistake_in_going_on_with_a_partition_is_not_the_end_of_it(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.client(1).commit(GROUP, 5)
    cluster.run()
    groups, calls = cluster.brokers[2].groups, []

    def loaded(partitions: Collection[int]) -> None:
        calls.append(partitions)
        if len(calls) == 1:
            raise ZeroDivisionError("by the test")

    monkeypatch.setattr(groups, "loaded", loaded)
    cluster.elect(OFFSETS_TOPIC, 0, 2)
    cluster.run()
    assert groups.partitions.error_of(GROUP) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    cluster.world.pass_time(LOAD_RETRY_S * 1000)
    assert calls == [[0], [0]]
    assert committed(cluster, 2) == 5


def test_a_group_keeps_its_members_and_offsets_when_its_coordinator_dies(cluster: Cluster) -> None:
    client = cluster.client(1)
    client.commit(GROUP, 5)
    cluster.run()
    client.later.clear()
    client.join(GROUP)
    cluster.run()
    joined = client.later.pop()
    client.sync(GROUP, joined)
    cluster.run()
    assert error_of(client.later.pop()) is ErrorCode.NONE
    cluster.kill(1)
    listed = cluster.client(2).ask(ApiKey.LIST_GROUPS, 4, states_filter=[])
    assert error_of(listed) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    cluster.run()
    assert error_of(cluster.client(2).heartbeat(GROUP, joined)) is ErrorCode.NONE
    assert committed(cluster, 2) == 5
    group = cluster.brokers[2].groups.group(GROUP)
    assert group is not None
    assert group.generation == joined.generation_id


def test_a_member_is_told_errors_that_it_knows_while_its_coordinator_reads_back(cluster: Cluster) -> None:
    """Neither a heartbeat's client nor, as Java's takes it for the end, a sync's has heard of loading; as in Kafka."""
    client = cluster.client(1)
    client.join(GROUP)
    cluster.run()
    joined = client.later.pop()
    cluster.kill(1)
    other = cluster.client(2)
    assert cluster.brokers[2].groups.partitions.error_of(GROUP) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert error_of(other.heartbeat(GROUP, joined)) is ErrorCode.NONE
    other.sync(GROUP, joined)
    assert error_of(other.later.pop()) is ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize("version", [7, 9])
def test_a_fetch_of_what_does_not_become_safe_is_told_an_error_that_it_knows(cluster: Cluster, version: int) -> None:
    """Java's consumer before 3.9 takes COORDINATOR_NOT_AVAILABLE for the end here; as in Kafka."""
    client = cluster.client(1)
    client.commit(GROUP, 5)
    topics = [("t", [0])]
    asked = {"group_id": GROUP, "topics": topics} if version < 8 else {"groups": [(GROUP, None, -1, topics)]}
    assert client.ask(ApiKey.OFFSET_FETCH, version, require_stable=False, **asked) is None
    cluster.world.pass_time(SAFE_TIMEOUT_MS)
    answer = client.later[-1]
    told = answer if version < 8 else answer.groups[0]
    assert ErrorCode(told.error_code) is ErrorCode.NOT_COORDINATOR


def test_what_was_not_safe_is_not_acknowledged_by_the_old_coordinator(cluster: Cluster) -> None:
    client = cluster.client(1)
    client.commit(GROUP, 5)
    cluster.run()
    client.later.clear()
    client.commit(GROUP, 6)
    cluster.elect(OFFSETS_TOPIC, 0, 2)
    assert error_of(client.later.pop()) is ErrorCode.NOT_COORDINATOR
    cluster.run()
    assert committed(cluster, 2) == 5
    assert not cluster.brokers[1].groups.offsets.groups()


def test_members_that_wait_look_for_the_next_coordinator(cluster: Cluster) -> None:
    first = cluster.client(1)
    first.join(GROUP)
    cluster.run()
    joined = first.later.pop()
    second = cluster.client(1)
    assert second.join(GROUP, instance_id="j") is None, "it waits for the first to join again"
    cluster.run()
    assert not second.later
    cluster.elect(OFFSETS_TOPIC, 0, 2)
    assert error_of(second.later.pop()) is ErrorCode.NOT_COORDINATOR
    assert not cluster.brokers[1].groups.all_ids()
    cluster.world.pass_time(60_000)
    assert error_of(first.heartbeat(GROUP, joined)) is ErrorCode.NOT_COORDINATOR
    assert not first.later, "no timer of the former coordinator goes off"


def test_a_coordinator_with_too_few_replicas_takes_nothing(cluster: Cluster) -> None:
    cluster.kill(2)
    cluster.kill(3)
    client = cluster.client(1)
    assert error_of(client.commit(GROUP, 5)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert not cluster.brokers[1].groups.offsets.groups()
    client.join(GROUP)
    assert error_of(client.later.pop()) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert not cluster.brokers[1].groups.all_ids()


def test_a_broker_that_stops_reads_nothing_back_any_more(cluster: Cluster) -> None:
    cluster.client(1).commit(GROUP, 5)
    cluster.run()
    cluster.elect(OFFSETS_TOPIC, 0, 2)
    cluster.brokers[2].close()
    cluster.world.pass_time(1_000)
    assert not cluster.brokers[2].groups.all_ids()


def test_an_answer_does_not_wait_without_end(cluster: Cluster) -> None:
    client = cluster.client(1)
    client.commit(GROUP, 5)
    cluster.world.pass_time(SAFE_TIMEOUT_MS)
    assert error_of(client.later.pop()) is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_a_partition_that_comes_back_is_read_anew(cluster: Cluster) -> None:
    cluster.client(1).commit(GROUP, 5)
    cluster.run()
    cluster.elect(OFFSETS_TOPIC, 0, 2)
    cluster.run()
    cluster.client(2).commit(GROUP, 6)
    cluster.run()
    cluster.elect(OFFSETS_TOPIC, 0, 1)
    cluster.run()
    assert committed(cluster, 1) == 6
    assert error_of(cluster.client(2).committed(GROUP)) is ErrorCode.NOT_COORDINATOR


def test_leadership_that_is_lost_while_loading_leaves_nothing(cluster: Cluster) -> None:
    cluster.client(1).commit(GROUP, 5)
    cluster.run()
    cluster.elect(OFFSETS_TOPIC, 0, 2)
    cluster.elect(OFFSETS_TOPIC, 0, 3)
    cluster.run()
    assert not cluster.brokers[2].groups.offsets.groups()
    assert committed(cluster, 3) == 5


def test_other_partitions_stay_when_one_goes(cluster: Cluster) -> None:
    cluster = Cluster(World())
    cluster.create_topic("t", [1])
    cluster.create_topic(OFFSETS_TOPIC, [1, 1])
    cluster.run()
    partitions = cluster.brokers[1].groups.partitions
    by_index = {partitions.index_of(name): name for name in ("a", "b", "c", "d")}
    assert set(by_index) == {0, 1}
    for name in by_index.values():
        cluster.client(1).commit(name, 5)
    cluster.run()
    cluster.elect(OFFSETS_TOPIC, 1, 2)
    cluster.run()
    assert cluster.brokers[1].groups.all_ids() == [by_index[0]]
    assert cluster.brokers[2].groups.all_ids() == [by_index[1]]


def test_a_consumer_group_of_kip_848_goes_on_under_the_next_coordinator(cluster: Cluster) -> None:
    fields = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ["t"], "topic_partitions": []}
    client = cluster.client(1)
    client.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, group_id=GROUP, member_id="m", member_epoch=0, **fields)
    cluster.run()
    epoch = client.later.pop().member_epoch
    cluster.kill(1)
    cluster.run()
    beat = cluster.client(2).ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, group_id=GROUP, member_id="m", member_epoch=epoch)
    assert (ErrorCode(beat.error_code), beat.member_epoch) == (ErrorCode.NONE, epoch)


def test_a_batch_of_many_records_is_read_over_several_turns(cluster: Cluster) -> None:
    """Requests are answered in between: that the partition is loading."""
    cluster = Cluster(World())
    cluster.create_topic(OFFSETS_TOPIC, [1])
    log = cluster.brokers[1].leading(OFFSETS_TOPIC, 0).log
    for number in range(300):
        offset = CommittedOffset(number, -1, "m" * 1000, 0)
        log.append(encode_batch([encode(OffsetKey(GROUP, "t", 0), offset, 0)]), 0, 0)
    cluster.replicate()
    cluster.replicate()
    clock = cluster.world

    def slow(*_: object) -> int:
        clock.now_ms += 3
        return clock.now_ms

    cluster.brokers[2].groups.partitions._clock = Clock(slow, slow)
    cluster.kill(1)
    seen = []
    for _ in range(20):
        cluster.world.pass_time(10)
        seen.append(cluster.brokers[2].groups.partitions.error_of(GROUP))
    assert seen[0] is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert seen[-1] is ErrorCode.NONE
    assert cluster.brokers[2].groups.offsets.of_group(GROUP)["t", 0].offset == 299


class _Course:
    """Commits and reads at whoever coordinates, which changes at random; some answers come late, some never."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.cluster = Cluster(World())
        self.cluster.create_topic("t", [1])
        self.cluster.create_topic(OFFSETS_TOPIC, [1])
        self.cluster.run()
        self.committed = 0
        self.acknowledged = -1
        self.seen = -1
        self.waiting: list[tuple[str, int, Client]] = []

    def run(self) -> None:
        for _ in range(60):
            self._step()
        self.cluster.run()
        self._hear()
        self._read(wait=True)

    def _step(self) -> None:
        cluster, chance = self.cluster, self.random
        what = chance.randrange(6)
        if what <= 1:
            self.committed += 1
            client = cluster.client(self._coordinator())
            self._note("commit", self.committed, client, client.commit(GROUP, self.committed))
        elif what == 2:
            self._read(wait=False)
        elif what == 3:
            cluster.elect(OFFSETS_TOPIC, 0, chance.choice((1, 2, 3)))
        elif what == 4:
            cluster.replicate()
        else:
            cluster.world.pass_time(0)
        self._hear()

    def _coordinator(self) -> int:
        topic = self.cluster.image.topic(OFFSETS_TOPIC)
        assert topic is not None
        return topic.partitions[0].leader

    def _read(self, wait: bool) -> None:
        client = self.cluster.client(self._coordinator())
        self._note("read", -1, client, client.committed(GROUP))
        if wait:
            self.cluster.run()
            self._hear()
            assert self.seen >= self.acknowledged, "it was acknowledged, and is lost"

    def _note(self, what: str, offset: int, client: Client, answer: object) -> None:
        if answer is not None:
            client.later.append(answer)
        self.waiting.append((what, offset, client))

    def _hear(self) -> None:
        for each in list(self.waiting):
            what, offset, client = each
            if not client.later:
                continue
            self.waiting.remove(each)
            answer = client.later.pop()
            if error_of(answer) is not ErrorCode.NONE:
                continue
            if what == "commit":
                self.acknowledged = max(self.acknowledged, offset)
            else:
                found = answer.groups[0].topics[0].partitions[0].committed_offset
                assert found >= self.seen, "what was read has vanished"
                self.seen = found


@pytest.mark.parametrize("seed", range(12))
def test_nothing_acknowledged_is_lost_and_nothing_read_vanishes(seed: int) -> None:
    _Course(seed).run()


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(12, 1_000))
def test_nothing_acknowledged_is_lost_and_nothing_read_vanishes_for_long(seed: int) -> None:
    _Course(seed).run()


def test_a_topic_id_of_zeros_is_an_unknown_one(cluster: Cluster) -> None:
    client = cluster.client(1)
    refused = client.ask(
        ApiKey.OFFSET_COMMIT,
        10,
        group_id=GROUP,
        generation_id_or_member_epoch=-1,
        member_id="",
        group_instance_id=None,
        topics=[(ZERO_UUID, [(0, 5, -1, "")])],
    )
    assert error_of(refused) is ErrorCode.UNKNOWN_TOPIC_ID
    unknown = client.ask(ApiKey.OFFSET_FETCH, 10, groups=[(GROUP, None, -1, [(ZERO_UUID, [0])])], require_stable=False)
    assert unknown.groups[0].topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID

"""Groups carried out: their records, restarts, timers and expiry, with a clock and a disk of the test's."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from sparkonce.broker_lite import dispatch
from sparkonce.broker_lite.coordinators.group_messages import GroupState
from sparkonce.broker_lite.coordinators.group_records import ClassicRecord, ConsumerRecord, decode
from sparkonce.broker_lite.coordinators.internal_topics import INTERNAL_TOPICS
from sparkonce.broker_lite.coordinators.offsets import OFFSETS_TOPIC, CommittedOffset, OffsetKey, decode_key, encode
from sparkonce.broker_lite.node.broker import Broker
from sparkonce.broker_lite.node.offsets_log import OffsetsLog
from sparkonce.broker_lite.node.request import Body, Endpoint, Request
from sparkonce.broker_lite.waiting import begin
from sparkonce.kafka.protocol import apis
from sparkonce.kafka.protocol.apis import ApiKey
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError
from sparkonce.kafka.protocol.primitives import ZERO_UUID
from sparkonce.kafka.protocol.records import Record, decode_records, encode_batch, scan
from tests.unit.broker.test_transaction_coordinator import World

SESSION_MS = 45_000
MINUTE_MS = 60_000
SUBSCRIPTION = bytes.fromhex("0001 00000001 0001 74 ffffffff 00000000")  # to topic t
ASSIGNMENT = bytes.fromhex("0001 00000001 0001 74 00000001 00000000 ffffffff")


@pytest.fixture
def world() -> World:
    return World()


class Asker:
    """Asks a broker as a connection would."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.later: list[Any] = []

    def ask(self, key: ApiKey, version: int, **fields: Any) -> Any:
        body = memoryview(bytes(apis.encode_request(apis.request(key, version, **fields), version)))
        request = Request(key, version, 1, "c", "h", body, "User:ANONYMOUS", Endpoint("h", 1))

        def on_end(body: Body | None, error: Exception | None) -> None:
            assert error is None, error
            if body is not None:
                self.later.append(self._decode(request, body))

        begin(dispatch.handle(self.broker, request), on_end)
        return self.later.pop() if self.later else None

    def _decode(self, request: Request, body: Body) -> Any:
        data = b"".join(bytes(part) for part in body if isinstance(part, (bytes, bytearray, memoryview)))
        return apis.decode_response(request.api_key, request.version, data)

    def join_classic(self, group_id: str = "g", instance_id: str | None = None, member_id: str = "") -> Any:
        return self.ask(
            ApiKey.JOIN_GROUP,
            5,
            group_id=group_id,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=MINUTE_MS,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type="consumer",
            protocols=[("range", SUBSCRIPTION)],
        )

    def settle_classic(self, group_id: str = "g") -> Any:
        """Bring a static member into a Stable classic group."""
        joined = self.join_classic(group_id, "i")
        assert joined.error_code == 0
        synced = self.ask(
            ApiKey.SYNC_GROUP,
            3,
            group_id=group_id,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            group_instance_id="i",
            assignments=[(joined.member_id, ASSIGNMENT)],
        )
        assert synced.error_code == 0
        return joined

    def heartbeat(self, member_id: str = "m", epoch: int = 0, group_id: str = "g", **fields: Any) -> Any:
        if epoch == 0:
            fields = {"rebalance_timeout_ms": 1, "subscribed_topic_names": ["t"], "topic_partitions": [], **fields}
        return self.ask(
            ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, group_id=group_id, member_id=member_id, member_epoch=epoch, **fields
        )

    def commit(
        self, member_id: str = "", epoch: int = -1, version: int = 9, group_id: str = "g", topic: str = "t"
    ) -> ErrorCode:
        answer = self.ask(
            ApiKey.OFFSET_COMMIT,
            version,
            group_id=group_id,
            generation_id_or_member_epoch=epoch,
            member_id=member_id,
            topics=[(topic, [(0, 5, -1, "")])],
        )
        return ErrorCode(answer.topics[0].partitions[0].error_code)

    def states(self) -> dict[str, tuple[str, str]]:
        answer = self.ask(ApiKey.LIST_GROUPS, 5, states_filter=[], types_filter=[])
        return {each.group_id: (each.group_state, each.group_type) for each in answer.groups}


def start(world: World, **settings: Any) -> Asker:
    """Start a broker; one that runs is dropped as SIGKILL would."""
    world.storage.locks.clear()
    broker = world.start(**settings)
    if broker.topic("t") is None:
        broker.create_topic("t", 2, {})
    for name in sorted(INTERNAL_TOPICS):  # clients ask for the coordinator first, which makes them
        broker.internal_topic(name)
    return Asker(broker)


def removed_offsets(broker: Broker) -> Iterator[OffsetKey]:
    for log in broker.internal_topic(OFFSETS_TOPIC).logs.values():
        data = memoryview(log.read(0, 1 << 20, True).read())
        for position, header in scan(data):
            for record in decode_records(data[position : position + header.size]):
                key = decode_key(record.key) if record.value is None else None
                if key is not None:
                    yield key


def kinds(broker: Broker) -> Iterator[str]:
    records: list[Record] = []
    for _ in OffsetsLog(broker.pending_offsets, broker.groups.partitions).replay(
        broker.internal_topic(OFFSETS_TOPIC).logs, records.append
    ):
        pass
    for record in records:
        found = decode(record)
        if isinstance(found, ClassicRecord):
            yield "classic" if found.group is not None else "no classic"
        elif isinstance(found, ConsumerRecord):
            yield type(found.change).__name__ if record.value is not None else "-"
        else:
            yield "offset" if record.value is not None else "no offset"


def test_a_classic_group_survives_a_restart(world: World) -> None:
    joined = start(world).settle_classic()
    again = start(world)
    group = again.broker.groups.group("g")
    assert group is not None
    assert (group.state, group.generation) == (GroupState.STABLE, joined.generation_id)
    beat = {"group_id": "g", "generation_id": joined.generation_id, "group_instance_id": "i"}
    assert again.ask(ApiKey.HEARTBEAT, 3, member_id=joined.member_id, **beat).error_code == 0
    world.pass_time(SESSION_MS + 1)
    assert again.states() == {"g": ("Empty", "classic")}
    assert start(world).states() == {"g": ("Empty", "classic")}, "an empty group is written down, too"


def test_a_consumer_group_survives_a_restart(world: World) -> None:
    asker = start(world)
    joined = asker.heartbeat()
    assert (joined.error_code, joined.member_epoch, joined.heartbeat_interval_ms) == (0, 2, 5_000)
    (topic,) = joined.assignment.topic_partitions
    assert (topic.topic_id, topic.partitions) == (asker.broker.logs.topics["t"].topic_id, [0, 1])
    asker.heartbeat("n", topic_partitions=[])
    again = start(world)
    assert again.states() == {"g": ("Reconciling", "consumer")}
    told = again.heartbeat("m", 2)
    assert (told.error_code, told.member_epoch) == (0, 2)
    world.pass_time(SESSION_MS + 1)
    assert again.states() == {"g": ("Empty", "consumer")}


def test_the_records_of_a_member_come_in_kafkas_order(world: World) -> None:
    asker = start(world)
    asker.heartbeat()
    asker.heartbeat(epoch=-1)
    assert list(kinds(asker.broker)) == [
        *("MemberChanged", "EpochChanged", "TargetChanged", "TargetEpochChanged", "CurrentChanged"),
        *("-", "-", "-", "EpochChanged"),
    ]


def test_an_empty_group_becomes_one_of_the_other_kind(world: World) -> None:
    asker = start(world)
    joined = asker.settle_classic()
    assert ErrorCode(asker.heartbeat().error_code) is ErrorCode.GROUP_ID_NOT_FOUND, "it has a classic member"
    leaving = [(joined.member_id, None, None)]
    assert asker.ask(ApiKey.LEAVE_GROUP, 5, group_id="g", members=leaving).members[0].error_code == 0
    assert asker.heartbeat().error_code == 0
    assert asker.states() == {"g": ("Stable", "consumer")}
    refused = asker.join_classic()
    assert ErrorCode(refused.error_code) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "it has a member of KIP-848"
    assert start(world).states() == {"g": ("Stable", "consumer")}
    again = start(world)
    again.heartbeat(epoch=-1)
    assert again.join_classic(instance_id="j").error_code == 0
    assert again.states()["g"][1] == "classic"
    assert start(world).states() == {"g": ("Empty", "classic")}


def test_members_of_one_kind_are_strangers_to_the_other_apis(world: World, caplog: pytest.LogCaptureFixture) -> None:
    asker = start(world)
    asker.heartbeat()
    beat = asker.ask(ApiKey.HEARTBEAT, 3, group_id="g", generation_id=2, member_id="m", group_instance_id=None)
    assert ErrorCode(beat.error_code) is ErrorCode.UNKNOWN_MEMBER_ID
    (old,) = asker.ask(ApiKey.DESCRIBE_GROUPS, 5, groups=["g"]).groups
    assert (old.error_code, old.group_state) == (0, "Dead")
    (new,) = asker.ask(ApiKey.DESCRIBE_GROUPS, 6, groups=["g"]).groups
    assert (ErrorCode(new.error_code), new.group_state) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")
    asker.settle_classic("classic")
    (other,) = asker.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, group_ids=["classic"]).groups
    assert ErrorCode(other.error_code) is ErrorCode.GROUP_ID_NOT_FOUND
    for _ in range(2):
        assert ErrorCode(asker.heartbeat(group_id="classic").error_code) is ErrorCode.GROUP_ID_NOT_FOUND
    (said,) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert said.startswith("group classic: a consumer of the protocol of KIP-848 (group.protocol=consumer) is refused")
    assert asker.states() == {"classic": ("Stable", "classic"), "g": ("Stable", "consumer")}
    filtered = asker.ask(ApiKey.LIST_GROUPS, 5, states_filter=["stable"], types_filter=["CONSUMER"])
    assert [(each.group_id, each.protocol_type) for each in filtered.groups] == [("g", "consumer")]


@pytest.mark.parametrize("version", [0, 1])
def test_a_consumer_group_is_described(world: World, version: int) -> None:
    asker = start(world)
    asker.heartbeat(instance_id="i", rack_id="r", subscribed_topic_regex="t.*", server_assignor="range")
    (found,) = asker.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, version, group_ids=["g"]).groups
    assert (found.group_state, found.group_epoch, found.assignment_epoch) == ("Stable", 2, 2)
    assert found.assignor_name == "range"
    (member,) = found.members
    assert (member.member_id, member.instance_id, member.rack_id, member.member_epoch) == ("m", "i", "r", 2)
    assert (member.subscribed_topic_names, member.subscribed_topic_regex) == (["t"], "t.*")
    assert (member.client_id, member.client_host) == ("c", "/h")
    assert [(each.topic_name, each.partitions) for each in member.assignment.topic_partitions] == [("t", [0, 1])]
    assert str(member.target_assignment) == str(member.assignment)
    assert version == 0 or member.member_type == 1


@pytest.mark.parametrize(
    "fields",
    [
        {"group_id": ""},
        {"member_id": ""},
        {"instance_id": ""},
        {"rack_id": ""},
        {"epoch": -3},
        {"rebalance_timeout_ms": -1},
        {"topic_partitions": None},
        {"topic_partitions": [(uuid.UUID(int=1), [0])]},
        {"subscribed_topic_names": None},
        {"epoch": -2},
    ],
    ids=str,
)
def test_heartbeats_that_make_no_sense_are_refused(world: World, fields: dict[str, Any]) -> None:
    asker = start(world)
    answer = asker.heartbeat(**fields)
    assert ErrorCode(answer.error_code) is ErrorCode.INVALID_REQUEST
    assert answer.error_message
    assert asker.states() == {}


def test_a_member_of_version_zero_is_given_its_id(world: World) -> None:
    asker = start(world)
    answer = asker.ask(
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        0,
        group_id="g",
        member_id="",
        member_epoch=0,
        rebalance_timeout_ms=1,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    assert answer.error_code == 0
    assert uuid.UUID(answer.member_id)


def test_a_static_member_of_a_consumer_group_is_removed_by_its_instance(world: World) -> None:
    asker = start(world)
    asker.heartbeat(instance_id="i")
    gone = asker.ask(ApiKey.LEAVE_GROUP, 5, group_id="g", members=[("m", None, None), ("", "x", None), ("", "i", None)])
    assert [ErrorCode(each.error_code) for each in gone.members] == [
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.NONE,
    ]
    assert asker.states() == {"g": ("Empty", "consumer")}


def test_offsets_of_a_consumer_group_are_for_its_members(world: World) -> None:
    asker = start(world)
    assert asker.commit(epoch=3) is ErrorCode.GROUP_ID_NOT_FOUND
    assert asker.commit(epoch=3, version=8) is ErrorCode.ILLEGAL_GENERATION
    asker.heartbeat()
    assert asker.commit("m", 2) is ErrorCode.NONE
    assert asker.commit("m", 3) is ErrorCode.STALE_MEMBER_EPOCH
    assert asker.commit("m", 2, version=8) is ErrorCode.UNSUPPORTED_VERSION
    assert asker.commit() is ErrorCode.UNKNOWN_MEMBER_ID
    for epoch, expected in ((2, ErrorCode.NONE), (1, ErrorCode.STALE_MEMBER_EPOCH)):
        (found,) = asker.ask(
            ApiKey.OFFSET_FETCH, 9, groups=[("g", "m", epoch, [("t", [0])])], require_stable=False
        ).groups
        assert ErrorCode(found.error_code) is expected
        assert [each.partitions[0].committed_offset for each in found.topics] == ([5] if not expected else [])


def test_offsets_of_an_earlier_topic_are_not_those_of_the_next_of_its_name(world: World) -> None:
    asker = start(world)
    asker.commit()
    table, old = asker.broker.groups.offsets, asker.broker.logs.topics["t"]
    kept = table.of_group("g")["t", 0]
    assert kept.topic_id == old.topic_id
    assert kept.is_for(old.topic_id)
    assert kept.is_for(ZERO_UUID)
    assert not kept.is_for(uuid.UUID(int=7))


def test_offsets_of_a_group_without_members_expire(world: World) -> None:
    settings = {"offsets_retention_minutes": 2, "offsets_retention_check_interval_ms": 1_000}
    asker = start(world, **settings)
    asker.commit(group_id="simple")
    joined = asker.settle_classic()
    assert (
        asker.ask(
            ApiKey.OFFSET_COMMIT,
            7,
            group_id="g",
            generation_id_or_member_epoch=joined.generation_id,
            member_id=joined.member_id,
            group_instance_id="i",
            topics=[("t", [(0, 5, -1, "")])],
        )
        .topics[0]
        .partitions[0]
        .error_code
        == 0
    )
    world.pass_time(MINUTE_MS)
    assert asker.states() == {"g": ("Empty", "classic"), "simple": ("Empty", "classic")}
    world.pass_time(MINUTE_MS + 2_000)
    assert set(asker.states()) == {"g"}, "counted from when it became empty, when its session ended"
    world.pass_time(SESSION_MS)
    assert asker.states() == {}
    assert "no classic" in list(kinds(asker.broker))
    assert start(world, **settings).states() == {}


def test_offsets_that_members_need_do_not_expire(world: World) -> None:
    settings = {"offsets_retention_minutes": 1, "offsets_retention_check_interval_ms": 1_000}
    asker = start(world, **settings)
    asker.heartbeat()
    asker.broker.create_topic("u", 1, {})
    asker.commit("m", 2)
    world.pass_time(SESSION_MS - 1)
    epoch = asker.heartbeat(epoch=2).member_epoch
    world.pass_time(SESSION_MS - 1)
    assert ("t", 0) in asker.broker.groups.offsets.of_group("g")
    assert asker.heartbeat(epoch=epoch, subscribed_topic_names=["u"]).error_code == 0
    world.pass_time(2_000)
    assert asker.broker.groups.offsets.of_group("g") == {}


def delete_offsets(asker: Asker, group_id: str = "g", topic: str = "t") -> tuple[ErrorCode, list[ErrorCode]]:
    answer = asker.ask(ApiKey.OFFSET_DELETE, 0, group_id=group_id, topics=[(topic, [(0,), (1,)])])
    found = [ErrorCode(each.error_code) for topic in answer.topics for each in topic.partitions]
    return ErrorCode(answer.error_code), found


def test_offsets_are_deleted_by_hand_unless_members_need_them(world: World) -> None:
    asker = start(world)
    assert delete_offsets(asker) == (ErrorCode.GROUP_ID_NOT_FOUND, [])
    asker.settle_classic()
    asker.heartbeat(group_id="modern")
    subscribed = [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC] * 2
    assert delete_offsets(asker) == (ErrorCode.NONE, subscribed)
    assert delete_offsets(asker, "modern") == (ErrorCode.NONE, subscribed)
    assert delete_offsets(asker, topic="x") == (ErrorCode.NONE, [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2)
    asker.commit(group_id="free")
    assert delete_offsets(asker, "free") == (ErrorCode.NONE, [ErrorCode.NONE] * 2)
    assert asker.broker.groups.offsets.of_group("free") == {}


def test_offsets_of_a_deleted_topic_are_removed_in_the_order_in_which_groups_came(world: World) -> None:
    """So that a broker's log does not depend on hashes, which are other ones in each process."""
    asker = start(world)
    groups = [f"g{number}" for number in (5, 2, 7, 1, 8, 3, 6, 4)]
    for group_id in groups:
        asker.commit(group_id=group_id)
    asker.broker.groups.forget_topic("t")
    assert [key.group_id for key in removed_offsets(asker.broker)] == groups


def test_offsets_of_a_deleted_group_are_removed_in_the_order_in_which_they_came(world: World) -> None:
    asker = start(world)
    topics = [f"t{number}" for number in (5, 2, 7, 1, 8, 3, 6, 4)]
    for topic in topics:
        asker.broker.create_topic(topic, 1, {})
        asker.commit(topic=topic)
    assert asker.broker.groups.delete("g") is ErrorCode.NONE
    assert [key.topic for key in removed_offsets(asker.broker)] == topics


def test_groups_are_deleted_without_members(world: World) -> None:
    asker = start(world)
    asker.heartbeat(group_id="modern")
    asker.settle_classic()
    asker.commit(group_id="free")

    def delete(*group_ids: str) -> list[ErrorCode]:
        answer = asker.ask(ApiKey.DELETE_GROUPS, 2, groups_names=list(group_ids))
        return [ErrorCode(each.error_code) for each in answer.results]

    full, unknown = ErrorCode.NON_EMPTY_GROUP, ErrorCode.GROUP_ID_NOT_FOUND
    assert delete("modern", "g", "free", "nobody") == [full, full, ErrorCode.NONE, unknown]
    asker.heartbeat(epoch=-1, group_id="modern")
    world.pass_time(SESSION_MS + 1)
    assert delete("modern", "g") == [ErrorCode.NONE, ErrorCode.NONE]
    assert asker.states() == {}
    assert start(world).states() == {}


@pytest.mark.parametrize("kind", ["classic", "consumer"])
def test_a_session_that_is_over_keeps_no_group_from_being_deleted(world: World, kind: str) -> None:
    """The loop may be late with the timer, and the request be there before it."""
    asker = start(world)
    if kind == "classic":
        asker.settle_classic()
    else:
        asker.heartbeat()

    def delete() -> ErrorCode:
        return ErrorCode(asker.ask(ApiKey.DELETE_GROUPS, 2, groups_names=["g"]).results[0].error_code)

    world.now_ms += SESSION_MS - 1
    assert delete() is ErrorCode.NON_EMPTY_GROUP
    world.now_ms += 1
    assert delete() is ErrorCode.NONE
    assert asker.states() == {}
    world.pass_time(SESSION_MS)
    assert start(world).states() == {}


def test_a_record_that_cannot_be_read_is_passed_over(world: World, caplog: pytest.LogCaptureFixture) -> None:
    asker = start(world, offsets_topic_num_partitions=1)
    asker.commit()
    readable = encode(OffsetKey("g", "t", 1), CommittedOffset(5, -1, "", 0), 0)
    assert readable.value is not None
    later = Record(readable.key, bytes.fromhex("0005") + readable.value[2:], 0)  # as a later Kafka may write it
    log = asker.broker.internal_topic(OFFSETS_TOPIC).logs[0]
    log.append(encode_batch([later]), 0, world.now_ms)
    log.append(encode_batch([Record(bytes.fromhex("0001 00"), b"", 0)]), 0, world.now_ms)
    asker.commit(group_id="h")
    groups = start(world, offsets_topic_num_partitions=1).broker.groups
    assert set(groups.offsets.of_group("g")) == {("t", 0)}
    assert set(groups.offsets.of_group("h")) == {("t", 0)}
    assert "offset 1 is skipped" in caplog.text
    assert "offset 2 is skipped" in caplog.text


def test_a_start_that_fails_lets_go_of_the_directory(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    start(world).settle_classic()

    def fail(*_: object) -> None:
        raise ValueError("in the middle of the start")

    with monkeypatch.context() as broken:
        broken.setattr(OffsetsLog, "replay", fail)
        with pytest.raises(ValueError, match="in the middle"):
            start(world)
    assert not world.storage.locks
    assert start(world).states() == {"g": ("Stable", "classic")}


def test_nothing_is_due_after_the_end(world: World) -> None:
    """What a timer would write then would go into logs that are marked as ended cleanly."""
    asker = start(world)
    asker.settle_classic()
    asker.heartbeat(group_id="modern")
    asker.broker.close()
    written = {path: bytes(each.data) for path, each in world.storage.files.items()}
    world.pass_time(30 * MINUTE_MS)
    assert written == {path: bytes(each.data) for path, each in world.storage.files.items()}


def test_what_cannot_be_written_has_not_happened(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    asker = start(world)
    joined = asker.join_classic(instance_id="i")
    asker.heartbeat(group_id="modern")

    def full_disk(*_: object) -> None:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is full")

    with monkeypatch.context() as broken:
        broken.setattr(OffsetsLog, "append", full_disk)
        assert ErrorCode(asker.heartbeat("n", group_id="modern").error_code) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        joins = ErrorCode(asker.join_classic("new").error_code)
        assert joins is ErrorCode.NOT_COORDINATOR, "a client asks again; KAFKA_STORAGE_ERROR would be the end of it"
        sync = {"group_id": "g", "generation_id": 1, "member_id": joined.member_id, "group_instance_id": "i"}
        synced = asker.ask(ApiKey.SYNC_GROUP, 3, assignments=[(joined.member_id, b"x")], **sync)
        assert ErrorCode(synced.error_code) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        world.pass_time(SESSION_MS)
        assert asker.states()["modern"] == ("Stable", "consumer"), "it cannot be removed yet"
    world.pass_time(2_000)
    assert asker.states()["modern"] == ("Empty", "consumer"), "it was tried again"
    assert OFFSETS_TOPIC in asker.broker.logs.topics


def test_features_are_announced(world: World) -> None:
    answer = start(world).ask(ApiKey.API_VERSIONS, 4, client_software_name="c", client_software_version="1")
    assert ("group.version", 1, 1) in {
        (each.name, each.min_version_level, each.max_version_level) for each in answer.finalized_features
    }

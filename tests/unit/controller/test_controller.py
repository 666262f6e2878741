"""The controller: registration, leases, proposals, topics, elections (Kafka's QuorumController)."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pytest

from sparkonce.broker_lite.controller.controller import PRODUCER_ID_BLOCK, ControllerSettings, InSyncProposal
from sparkonce.broker_lite.controller.records import (
    NO_BROKER_EPOCH,
    NO_LEADER,
    BrokerRegistered,
    ControllerElected,
    DefaultSettingsChanged,
    PartitionState,
)
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError
from tests.cases import each_case
from tests.unit.controller.cluster import ALONE, KEY, LEASE_MS, TOPIC, Cluster


def refused(action: Callable[[], object]) -> ErrorCode:
    with pytest.raises(KafkaError) as error:
        action()
    return error.value.code


# Registration, epochs and leases.


def test_the_offset_of_its_registration_is_a_brokers_epoch() -> None:
    cluster = Cluster()
    for broker_id, broker in cluster.image.brokers.items():
        record = cluster.log[broker.broker_epoch]
        assert isinstance(record, BrokerRegistered)
        assert record.broker_id == broker_id


def test_a_broker_is_fenced_until_it_has_caught_up_with_the_log() -> None:
    cluster = Cluster(brokers=0)
    cluster.register(1)
    heard = cluster.heartbeat(1, behind=True)
    assert heard.fenced
    assert not heard.caught_up
    assert not cluster.heartbeat(1).fenced
    assert cluster.image.may_join(1)


def test_the_same_start_may_register_twice() -> None:
    cluster = Cluster(brokers=0)
    start = uuid.uuid4()
    first, epoch = cluster.controller.register(1, start, "host", 1, NO_BROKER_EPOCH, cluster.now_ms)
    assert first
    assert cluster.controller.register(1, start, "host", 1, NO_BROKER_EPOCH, cluster.now_ms) == ([], epoch)


def test_an_id_is_taken_while_its_broker_has_a_lease() -> None:
    cluster = Cluster()
    cluster.now_ms += LEASE_MS - 1
    assert refused(lambda: cluster.register(2)) is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    cluster.now_ms += 1
    assert cluster.register(2) > 0


def test_who_is_not_heard_of_is_fenced_and_leads_nothing() -> None:
    cluster = Cluster()
    cluster.make_topic()
    cluster.silence(1)
    assert cluster.image.brokers[1].fenced
    assert (cluster.state.leader, cluster.state.in_sync_replicas) == (2, (2, 3))


def test_several_that_fall_silent_at_once_do_not_lead_for_each_other() -> None:
    cluster = Cluster()
    cluster.make_topic()
    cluster.silence(1, 2)
    assert (cluster.state.leader, cluster.state.leader_epoch) == (3, 1)


def test_an_old_epoch_counts_no_more() -> None:
    cluster = Cluster()
    old = cluster.image.broker_epoch(2)
    cluster.silence(2)
    cluster.start(2)
    controller, now_ms = cluster.controller, cluster.now_ms
    assert refused(lambda: controller.heartbeat(2, old, 99, False, now_ms)) is ErrorCode.STALE_BROKER_EPOCH
    assert refused(lambda: controller.alter_in_sync(2, old, [])) is ErrorCode.STALE_BROKER_EPOCH
    assert refused(lambda: controller.allocate_producer_ids(2, old)) is ErrorCode.STALE_BROKER_EPOCH
    assert refused(lambda: controller.heartbeat(9, 0, 99, False, now_ms)) is not None


def test_a_fenced_broker_that_is_heard_of_again_may_join_again() -> None:
    cluster = Cluster()
    cluster.make_topic()
    cluster.silence(3)
    assert not cluster.image.may_join(3)
    assert not cluster.heartbeat(3).fenced
    assert cluster.state.in_sync_replicas == (1, 2), "only its leader can say that it is in sync"


def test_a_new_controller_gives_every_broker_a_whole_lease() -> None:
    cluster = Cluster()
    cluster.now_ms += 100 * LEASE_MS
    cluster.fail_over()
    assert cluster.controller.tick(cluster.now_ms) == []
    cluster.now_ms += LEASE_MS
    assert cluster.controller.tick(cluster.now_ms)


def test_a_registration_takes_leadership_away_at_once() -> None:
    cluster = Cluster()
    cluster.make_topic()
    cluster.now_ms += LEASE_MS
    for broker_id in (2, 3):
        cluster.heartbeat(broker_id)
    cluster.register(1)
    assert (cluster.state.leader, cluster.state.in_sync_replicas) == (2, (2, 3))


# A clean stop.


def test_leadership_moves_before_a_broker_stops() -> None:
    cluster = Cluster()
    cluster.make_topic()
    heard = cluster.heartbeat(1, wants_to_stop=True)
    assert heard.may_shut_down
    assert (cluster.state.leader, cluster.state.in_sync_replicas) == (2, (2, 3))
    assert cluster.heartbeat(1, wants_to_stop=True).may_shut_down, "asked again"


def test_after_a_clean_stop_a_broker_starts_at_once() -> None:
    cluster = Cluster()
    cluster.make_topic()
    epoch = cluster.image.broker_epoch(1)
    cluster.heartbeat(1, wants_to_stop=True)
    cluster.start(1, last_epoch=epoch)
    assert cluster.image.may_join(1)


def test_who_stopped_cleanly_has_forgotten_nothing() -> None:
    cluster = Cluster()
    cluster.make_topic()
    cluster.silence(2, 3)
    epoch = cluster.image.broker_epoch(1)
    assert cluster.heartbeat(1, wants_to_stop=True).may_shut_down, "even the last one"
    assert (cluster.state.leader, cluster.state.eligible_leader_replicas) == (NO_LEADER, (1,))
    cluster.register(1, last_epoch=epoch)
    assert cluster.state.eligible_leader_replicas == (1,)
    cluster.start(2)
    assert cluster.state.leader == NO_LEADER
    cluster.heartbeat(1)
    assert (cluster.state.leader, cluster.state.in_sync_replicas) == (1, (1,))


@pytest.mark.parametrize("last_epoch", [NO_BROKER_EPOCH, 0])
def test_who_did_not_stop_cleanly_may_have_forgotten(last_epoch: int) -> None:
    cluster = Cluster()
    cluster.make_topic(min_insync_replicas="3")
    cluster.silence(2, 3)
    assert cluster.state.eligible_leader_replicas == (2, 3)
    cluster.start(3, last_epoch)
    assert cluster.state.eligible_leader_replicas == (2,)


def test_the_last_leader_leads_again_where_nobody_knows_better() -> None:
    cluster = Cluster()
    cluster.make_topic()
    cluster.silence(2, 3)
    cluster.silence(1)
    assert cluster.state.last_known_leader == 1
    cluster.start(2)
    assert cluster.state.leader == NO_LEADER
    cluster.start(1)
    assert (cluster.state.leader, cluster.state.eligible_leader_replicas) == (1, ())


# Who is in sync.


def test_a_leader_may_say_who_is_in_sync() -> None:
    cluster = Cluster()
    cluster.make_topic(min_insync_replicas="2")
    answer = cluster.propose(1)
    assert answer == cluster.state
    assert (cluster.state.in_sync_replicas, cluster.state.eligible_leader_replicas) == ((1,), (2, 3))
    assert (cluster.state.partition_epoch, cluster.state.leader_epoch) == (1, 0)


def test_a_proposal_is_taken_once_only() -> None:
    cluster = Cluster()
    cluster.make_topic()
    cluster.propose(1, 2)
    again = cluster.propose(1, 2, 3, partition_epoch=0)
    assert isinstance(again, KafkaError)
    assert again.code is ErrorCode.INVALID_UPDATE_VERSION


@each_case(
    ("in_sync", "changes", "code"),
    [
        ((1, 2), {"key": (TOPIC, 9)}, ErrorCode.UNKNOWN_TOPIC_ID),
        ((1, 2), {"key": (uuid.UUID(int=1), 0)}, ErrorCode.UNKNOWN_TOPIC_ID),
        ((1, 2), {"leader_epoch": 2}, ErrorCode.NOT_CONTROLLER),
        ((1, 2), {"partition_epoch": 9}, ErrorCode.NOT_CONTROLLER),
        ((1, 2), {"leader_epoch": 0}, ErrorCode.FENCED_LEADER_EPOCH),
        ((1, 2), {"partition_epoch": 0}, ErrorCode.INVALID_UPDATE_VERSION),
        ((1,), {}, ErrorCode.INVALID_REQUEST),
        ((2, 4), {}, ErrorCode.INVALID_REQUEST),
        ((2, 3), {"in_sync_replicas": ((2, NO_BROKER_EPOCH), (3, 1))}, ErrorCode.INELIGIBLE_REPLICA),
        ((2, 1), {}, ErrorCode.INELIGIBLE_REPLICA),  # fenced
    ],
)
def test_what_a_leader_may_not_say(in_sync: tuple[int, ...], changes: dict[str, object], code: ErrorCode) -> None:
    cluster = Cluster(brokers=4)
    cluster.make_topic()
    cluster.silence(1)
    before = cluster.state
    assert before.leader == 2
    state = cluster.image.partition(KEY)
    assert state is not None
    proposal = InSyncProposal(
        KEY, 1, state.partition_epoch, tuple((each, cluster.image.broker_epoch(each)) for each in in_sync)
    )._replace(**changes)  # type: ignore[arg-type]
    records, (answer,) = cluster.controller.alter_in_sync(2, cluster.image.broker_epoch(2), [proposal])
    assert isinstance(answer, KafkaError)
    assert answer.code is code
    assert not records
    assert cluster.state == before


def test_who_does_not_lead_may_say_nothing() -> None:
    cluster = Cluster()
    cluster.make_topic()
    proposal = InSyncProposal(KEY, 0, 0, ((3, NO_BROKER_EPOCH),))
    _, (answer,) = cluster.controller.alter_in_sync(3, cluster.image.broker_epoch(3), [proposal])
    assert isinstance(answer, KafkaError)
    assert answer.code is ErrorCode.FENCED_LEADER_EPOCH


def test_one_that_has_started_again_meanwhile_does_not_join() -> None:
    """KIP-903: the leader has seen what its former start had; the new one may have lost that."""
    cluster = Cluster()
    cluster.make_topic()
    cluster.silence(2)
    seen = (2, cluster.image.broker_epoch(2))
    cluster.start(2)
    leader = (1, cluster.image.broker_epoch(1))
    answer = cluster.propose(1, 2, in_sync_replicas=(leader, seen))
    assert isinstance(answer, KafkaError)
    assert answer.code is ErrorCode.INELIGIBLE_REPLICA
    assert cluster.propose(1, 2) == cluster.state


def test_one_about_to_stop_does_not_join() -> None:
    cluster = Cluster()
    cluster.make_topic()
    cluster.heartbeat(3, wants_to_stop=True)
    answer = cluster.propose(1, 2, 3)
    assert isinstance(answer, KafkaError)
    assert answer.code is ErrorCode.INELIGIBLE_REPLICA


def test_a_refused_proposal_does_not_hold_up_others() -> None:
    cluster = Cluster()
    cluster.make_topic((1, 2), (1, 2))
    epoch = cluster.image.broker_epoch(1)
    bad, good = InSyncProposal(KEY, 0, 5, ((1, epoch),)), InSyncProposal((TOPIC, 1), 0, 0, ((1, epoch),))
    records, answers = cluster.controller.alter_in_sync(1, epoch, [bad, good])
    assert isinstance(answers[0], KafkaError)
    assert answers[1] == cluster.image.partition((TOPIC, 1))
    assert len(records) == 1


# Topics.


def test_a_topics_replicas_are_spread_over_the_brokers_that_are_there() -> None:
    cluster = Cluster(brokers=4)
    cluster.silence(2)
    cluster.write(cluster.controller.create_topic("t", TOPIC, 3, 2, {}))
    placed = [state.replicas for _, state in cluster.image.partitions()]
    assert {each for replicas in placed for each in replicas} == {1, 3, 4}
    assert sorted(replicas[0] for replicas in placed) == [1, 3, 4]


def test_a_replica_that_is_not_there_is_not_in_sync_at_first() -> None:
    cluster = Cluster()
    cluster.silence(1)
    cluster.make_topic()
    assert (cluster.state.leader, cluster.state.in_sync_replicas) == (2, (2, 3))


@pytest.mark.parametrize("replicas", [((),), ((1, 1),), ((1, 9),), ((3,),)])
def test_replicas_that_cannot_be_are_refused(replicas: tuple[tuple[int, ...], ...]) -> None:
    cluster = Cluster()
    cluster.silence(3)
    before = len(cluster.image.topics)
    assert refused(lambda: cluster.make_topic(*replicas)) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert len(cluster.image.topics) == before


def test_topics_are_refused_deleted_and_grown() -> None:
    cluster = Cluster()
    cluster.make_topic()
    controller = cluster.controller
    assert refused(cluster.make_topic) is ErrorCode.TOPIC_ALREADY_EXISTS
    too_many = refused(lambda: controller.create_topic("u", uuid.uuid4(), 1, 4, {}))
    assert too_many is ErrorCode.INVALID_REPLICATION_FACTOR
    assert refused(lambda: controller.create_partitions("t", 1)) is ErrorCode.INVALID_PARTITIONS
    assert refused(lambda: controller.create_partitions("u", 2)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    cluster.write(controller.create_partitions("t", 3))
    assert [key[1] for key, _ in cluster.image.partitions()] == [0, 1, 2]
    assert all(len(state.replicas) == 3 for _, state in cluster.image.partitions())
    cluster.write(controller.delete_topic(TOPIC))
    assert cluster.image.partition(KEY) is None
    assert refused(lambda: controller.delete_topic(TOPIC)) is ErrorCode.UNKNOWN_TOPIC_ID


def test_a_topic_made_anew_is_not_the_one_that_was_to_be_deleted() -> None:
    cluster = Cluster()
    cluster.make_topic()
    cluster.write(cluster.controller.delete_topic(TOPIC))
    cluster.write(cluster.controller.create_topic("t", uuid.UUID(int=8), 1, 3, {}))
    assert refused(lambda: cluster.controller.delete_topic(TOPIC)) is ErrorCode.UNKNOWN_TOPIC_ID
    assert cluster.image.topic("t") is not None


def test_unclean_elections_happen_as_soon_as_they_are_allowed() -> None:
    cluster = Cluster()
    cluster.make_topic((1, 2))
    cluster.propose(1)
    cluster.silence(1)
    assert cluster.state.leader == NO_LEADER
    cluster.write(cluster.controller.change_settings("t", {"unclean.leader.election.enable": "true"}))
    assert (cluster.state.leader, cluster.state.in_sync_replicas) == (2, (2,))


def test_unclean_elections_of_all_topics_may_be_allowed() -> None:
    settings = ControllerSettings(LEASE_MS, topic_defaults={"unclean.leader.election.enable": "true"})
    cluster = Cluster(settings=settings)
    cluster.write(cluster.controller.begin())
    cluster.make_topic((1, 2))
    cluster.propose(1)
    cluster.silence(1)
    assert cluster.state.leader == 2


def test_a_broker_whose_disk_has_failed_leads_nothing_and_is_eligible_nowhere_until_it_is_started_again() -> None:
    cluster = Cluster()
    cluster.make_topic((1, 2, 3), min_insync_replicas="3")
    cluster.make_topic_alone()
    for _ in range(2):
        epoch = cluster.image.broker_epoch(1)
        records, heard = cluster.controller.heartbeat(
            1, epoch, cluster.image.next_offset, False, cluster.now_ms, wants_fence=True
        )
        cluster.write(records)
        assert heard.fenced
    assert (cluster.state.leader, cluster.state.in_sync_replicas) == (2, (2, 3))
    assert cluster.state.eligible_leader_replicas == (), "it may have lost something"
    assert records == []
    alone = cluster.image.partition(ALONE)
    assert alone is not None
    assert (alone.leader, alone.last_known_leader) == (NO_LEADER, 1)
    cluster.start(1)
    assert cluster.image.may_join(1)
    alone = cluster.image.partition(ALONE)
    assert alone is not None
    assert alone.leader == 1, "nobody else has its records"


@pytest.mark.parametrize("stops", [False, True])
@pytest.mark.parametrize("is_fenced", [False, True])
def test_a_broker_whose_disk_has_failed_is_eligible_nowhere_though_it_was_fenced_or_stops(
    stops: bool, is_fenced: bool
) -> None:
    """A disk that stalls keeps a broker from its heartbeats first, and only then does it fail."""
    cluster = Cluster()
    cluster.make_topic((1, 2, 3), min_insync_replicas="3")
    if is_fenced:
        cluster.silence(1)
        assert cluster.state.eligible_leader_replicas == (1,)
    epoch, end = cluster.image.broker_epoch(1), cluster.image.next_offset
    records, heard = cluster.controller.heartbeat(1, epoch, end, stops, cluster.now_ms, wants_fence=True)
    cluster.write(records)
    assert heard.fenced
    assert cluster.state.eligible_leader_replicas == ()
    assert 1 not in (cluster.state.leader, *cluster.state.in_sync_replicas)
    end = cluster.image.next_offset
    assert cluster.controller.heartbeat(1, epoch, end, stops, cluster.now_ms, wants_fence=True)[0] == []


def test_a_broker_whose_disk_fails_while_it_stops_is_eligible_nowhere() -> None:
    cluster = Cluster()
    cluster.make_topic((1, 2, 3), min_insync_replicas="3")
    epoch = cluster.image.broker_epoch(1)
    for wants_fence in (False, True):
        end = cluster.image.next_offset
        records, _ = cluster.controller.heartbeat(1, epoch, end, True, cluster.now_ms, wants_fence=wants_fence)
        cluster.write(records)
        assert cluster.state.eligible_leader_replicas == (() if wants_fence else (1,))


# What topics go by that have no settings of their own.


def test_the_first_controller_says_what_topics_go_by_and_its_successors_keep_to_that() -> None:
    cluster = Cluster(settings=ControllerSettings(LEASE_MS, topic_defaults={"min.insync.replicas": "2"}))
    assert len(cluster.write(cluster.controller.begin())) == 1
    cluster.settings = ControllerSettings(LEASE_MS, topic_defaults={"min.insync.replicas": "3"})
    cluster.fail_over()
    assert cluster.controller.begin() == []
    assert cluster.image.default_settings == {"min.insync.replicas": "2"}
    cluster.make_topic()
    assert cluster.image.min_in_sync_replicas(TOPIC) == 2
    cluster.propose(1)
    assert cluster.state.eligible_leader_replicas == (2, 3)


def test_a_log_of_before_is_told_what_counts_and_who_is_eligible_by_that() -> None:
    """Its controller went by a larger minimum than the one whose file counts from now on."""
    cluster = Cluster()
    cluster.write(cluster.controller.change_default_settings({"min.insync.replicas": "3"}))
    cluster.make_topic()
    cluster.propose(1, 2)
    assert cluster.state.eligible_leader_replicas == (3,)
    cluster.log = [each for each in cluster.log if not isinstance(each, DefaultSettingsChanged)]
    cluster.settings = ControllerSettings(LEASE_MS, topic_defaults={"min.insync.replicas": "2"})
    cluster.fail_over()
    cluster.write(cluster.controller.begin())
    assert cluster.state.eligible_leader_replicas == ()


def test_a_new_default_counts_for_topics_without_a_setting_of_their_own() -> None:
    cluster = Cluster()
    cluster.write(cluster.controller.change_default_settings({"min.insync.replicas": "3"}))
    cluster.make_topic((1, 2, 3))
    own = uuid.UUID(int=8)
    settings = {"min.insync.replicas": "3", "unclean.leader.election.enable": "false"}
    cluster.write(cluster.controller.create_topic("own", own, 1, 3, settings, ((1, 2, 3),)))
    cluster.propose(1, 2)
    cluster.propose(1, 2, key=(own, 0))
    assert cluster.write(cluster.controller.change_default_settings({"min.insync.replicas": "3"})) == []
    cluster.write(cluster.controller.change_default_settings({"min.insync.replicas": "2"}))
    assert cluster.state.eligible_leader_replicas == ()
    kept = cluster.image.partition((own, 0))
    assert kept is not None
    assert kept.eligible_leader_replicas == (3,)
    cluster.silence(1, 2)
    assert cluster.state.leader == NO_LEADER
    cluster.write(cluster.controller.change_default_settings({"unclean.leader.election.enable": "true"}))
    assert cluster.state.leader == 3, "at once"
    assert cluster.image.default_settings == {"min.insync.replicas": "2", "unclean.leader.election.enable": "true"}
    assert cluster.replay() == cluster.image


@pytest.mark.parametrize("text", ["true", "TRUE", " true "])
def test_what_a_topic_says_of_unclean_elections_is_read_as_its_settings_are(text: str) -> None:
    cluster = Cluster()
    cluster.make_topic(unclean_leader_election_enable=text)
    assert cluster.image.allows_unclean_election(TOPIC)


def test_topics_are_made_while_a_broker_is_away_and_it_gets_its_replica_when_it_is_back() -> None:
    cluster = Cluster()
    cluster.silence(2)
    cluster.write(cluster.controller.create_topic("t", TOPIC, 6, 3, {}))
    states = [state for _, state in cluster.image.partitions()]
    assert {state.replicas[0] for state in states} == {1, 3}
    assert all(set(state.replicas) == {1, 2, 3} and state.replicas[2] == 2 for state in states)
    assert all(set(state.in_sync_replicas) == {1, 3} and state.leader == state.replicas[0] for state in states)
    cluster.start(2)
    answer = cluster.propose(1, 2, 3) if cluster.state.leader == 1 else cluster.propose(3, 1, 2)
    assert isinstance(answer, PartitionState)
    assert set(answer.in_sync_replicas) == {1, 2, 3}


def test_after_a_smaller_minimum_nobody_out_of_sync_is_eligible() -> None:
    """The leader may acknowledge again, and those out of sync do not have that."""
    cluster = Cluster()
    cluster.make_topic(min_insync_replicas="3")
    cluster.propose(1, 2)
    assert cluster.state.eligible_leader_replicas == (3,)
    cluster.write(cluster.controller.change_settings("t", {"min.insync.replicas": "2"}))
    assert cluster.state.eligible_leader_replicas == ()
    cluster.silence(1, 2)
    assert cluster.state.leader == NO_LEADER, "broker 3 does not have all that was acknowledged"


# Elections on command, and balance.


def test_the_preferred_leader_leads_again_when_asked() -> None:
    cluster = Cluster()
    cluster.make_topic()
    elect = cluster.controller.elect
    assert refused(lambda: elect(KEY, unclean=False)) is ErrorCode.ELECTION_NOT_NEEDED
    cluster.silence(1)
    assert refused(lambda: elect(KEY, unclean=False)) is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert refused(lambda: elect(KEY, unclean=True)) is ErrorCode.ELECTION_NOT_NEEDED
    assert refused(lambda: elect((TOPIC, 5), unclean=True)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    cluster.heartbeat(1)
    cluster.propose(1, 2, 3)
    cluster.write(elect(KEY, unclean=False))
    assert (cluster.state.leader, cluster.state.leader_epoch) == (1, 2)


def test_anybody_leads_when_asked_where_nobody_does() -> None:
    cluster = Cluster()
    cluster.make_topic((1, 2))
    cluster.propose(1)
    cluster.silence(1, 2)
    elect = cluster.controller.elect
    assert refused(lambda: elect(KEY, unclean=True)) is ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    cluster.start(2)
    assert cluster.state.leader == NO_LEADER
    cluster.write(elect(KEY, unclean=True))
    assert cluster.state.leader == 2


def test_leadership_goes_back_to_the_preferred_leaders_now_and_then() -> None:
    cluster = Cluster(settings=ControllerSettings(LEASE_MS, rebalance_interval_ms=60_000))
    cluster.make_topic()
    cluster.silence(1)
    cluster.heartbeat(1)
    cluster.propose(1, 2, 3)
    assert cluster.state.leader == 2
    for _ in range(15):
        cluster.silence()
    assert cluster.state.leader == 1


def test_with_an_interval_of_0_leadership_stays() -> None:
    cluster = Cluster(settings=ControllerSettings(LEASE_MS, rebalance_interval_ms=0))
    cluster.make_topic()
    cluster.silence(1)
    cluster.heartbeat(1)
    cluster.propose(1, 2, 3)
    for _ in range(60):
        cluster.silence()
    assert cluster.state.leader == 2


# The rest of the image.


def test_no_producer_id_is_given_twice() -> None:
    cluster = Cluster()
    blocks = []
    for broker_id in (1, 2, 1):
        records, block = cluster.controller.allocate_producer_ids(broker_id, cluster.image.broker_epoch(broker_id))
        cluster.write(records)
        blocks.append(block)
        cluster.fail_over()
    assert [len(block) for block in blocks] == [PRODUCER_ID_BLOCK] * 3
    assert len({each for block in blocks for each in block}) == 3 * PRODUCER_ID_BLOCK


def test_the_image_tells_who_the_controller_is() -> None:
    cluster = Cluster()
    cluster.image.apply(ControllerElected(2, 5))
    assert (cluster.image.controller_id, cluster.image.controller_epoch) == (2, 5)


def test_one_that_is_not_in_sync_joins_with_the_epoch_of_its_latest_start_only() -> None:
    cluster = Cluster(brokers=3)
    cluster.make_topic()
    left = cluster.propose(1, 2)
    assert not isinstance(left, KafkaError)
    epoch_of, controller = cluster.image.broker_epoch, cluster.controller
    for epoch, joins in ((NO_BROKER_EPOCH, False), (epoch_of(3) - 1, False), (epoch_of(3), True)):
        state = cluster.state
        in_sync = ((1, NO_BROKER_EPOCH), (2, epoch_of(2)), (3, epoch))
        proposal = InSyncProposal(KEY, state.leader_epoch, state.partition_epoch, in_sync)
        _, (answer,) = controller.alter_in_sync(state.leader, epoch_of(state.leader), [proposal])
        assert (not isinstance(answer, KafkaError)) == joins

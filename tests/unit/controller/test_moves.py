"""Partitions that move to other replicas (KIP-455): who waits for whom, what is given up, and what is refused."""

from __future__ import annotations

import pytest

from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError
from tests.unit.controller.cluster import KEY, TOPIC, Cluster
from tests.unit.replication.stage import Stage


def moved(cluster: Cluster, *target: int) -> None:
    cluster.write(cluster.controller.reassign(KEY, target or None))


def refused(cluster: Cluster, *target: int) -> ErrorCode:
    before = cluster.image.next_offset
    with pytest.raises(KafkaError) as error:
        moved(cluster, *target)
    assert cluster.image.next_offset == before
    return error.value.code


def test_new_replicas_are_in_sync_before_the_old_ones_go() -> None:
    cluster = Cluster(brokers=4)
    cluster.make_topic((1, 2))
    moved(cluster, 3, 4)
    assert cluster.state.replicas == (3, 4, 1, 2)
    assert (cluster.state.adding_replicas, cluster.state.removing_replicas) == ((3, 4), (1, 2))
    assert (cluster.state.leader, cluster.state.in_sync_replicas) == (1, (1, 2))
    cluster.propose(3, 1, 2)
    assert cluster.state.replicas == (3, 4, 1, 2)
    answer = cluster.propose(3, 4, 1, 2)
    assert not isinstance(answer, Exception)
    assert (answer.leader, answer.in_sync_replicas) == (1, (3, 4, 1, 2)), "the end of the move is in the log only"
    state = cluster.state
    assert (state.replicas, state.in_sync_replicas, state.leader) == ((3, 4), (3, 4), 3)
    assert (state.adding_replicas, state.removing_replicas) == ((), ())
    assert state.leader_epoch == answer.leader_epoch + 1
    assert state.partition_epoch == answer.partition_epoch + 1
    assert cluster.replay() == cluster.image


def test_fewer_replicas_or_another_order_need_nobody() -> None:
    cluster = Cluster()
    cluster.make_topic((1, 2, 3))
    moved(cluster, 3, 1)
    assert (cluster.state.replicas, cluster.state.in_sync_replicas, cluster.state.leader) == ((3, 1), (3, 1), 1)
    moved(cluster, 1, 3)
    assert (cluster.state.replicas, cluster.state.adding_replicas, cluster.state.leader) == ((1, 3), (), 1)
    epoch = cluster.state.partition_epoch
    moved(cluster, 1, 3)
    assert cluster.state.partition_epoch == epoch


def test_a_removal_begins_an_epoch_with_the_same_leader_too() -> None:
    cluster = Cluster()
    cluster.make_topic((1, 2))
    moved(cluster, 1, 2, 3)
    assert (cluster.state.leader, cluster.state.leader_epoch) == (1, 0), "nobody has been removed"
    moved(cluster)
    assert (cluster.state.replicas, cluster.state.leader, cluster.state.leader_epoch) == ((1, 2), 1, 1)
    moved(cluster, 2)
    assert (cluster.state.leader, cluster.state.leader_epoch) == (2, 2), "another leader, and one epoch for both"


def test_fetches_of_a_log_that_is_to_be_removed_do_not_count_for_the_next_one() -> None:
    stage = Stage(3)
    stage.produce("m1")
    stage.catch_up(2, 3)
    stage.nodes[3].hears = False
    stage.reassign(1, 2)
    stage.reassign(1, 2, 3)
    assert stage.fetch(3) is ErrorCode.FENCED_LEADER_EPOCH
    assert stage.alter_in_sync() == []
    assert stage.state.in_sync_replicas == (1, 2)


def test_a_move_is_given_up_or_goes_elsewhere() -> None:
    cluster = Cluster(brokers=4)
    cluster.make_topic((1, 2))
    before = cluster.state
    moved(cluster, 3, 4)
    cluster.propose(3, 1, 2)
    moved(cluster, 4, 2)
    assert (cluster.state.replicas, cluster.state.in_sync_replicas) == ((4, 2, 1), (2, 1))
    assert (cluster.state.adding_replicas, cluster.state.removing_replicas) == ((4,), (1,))
    moved(cluster)
    assert cluster.state.replicas == (2, 1) or cluster.state.replicas == before.replicas
    assert (cluster.state.adding_replicas, cluster.state.removing_replicas) == ((), ())
    assert refused(cluster) is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


def test_a_broker_that_dies_holds_a_move_up_until_it_is_back() -> None:
    cluster = Cluster()
    cluster.make_topic((1, 2))
    moved(cluster, 3, 2)
    cluster.silence(3)
    cluster.propose(1, 2)
    assert cluster.state.adding_replicas == (3,)
    cluster.heartbeat(3)
    cluster.propose(1, 2, 3)
    assert cluster.state.replicas == (3, 2)


def test_nobody_goes_before_one_that_stays_is_in_sync() -> None:
    cluster = Cluster()
    cluster.make_topic((1, 2))
    cluster.propose(1)
    moved(cluster, 2)
    assert (cluster.state.replicas, cluster.state.removing_replicas, cluster.state.leader) == ((2, 1), (1,), 1)
    cluster.propose(1, 2)
    assert (cluster.state.replicas, cluster.state.in_sync_replicas, cluster.state.leader) == ((2,), (2,), 2)


def test_moves_to_nowhere_are_refused() -> None:
    cluster = Cluster()
    cluster.make_topic((1, 2))
    assert refused(cluster, 9) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert refused(cluster, 3, 3) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    with pytest.raises(KafkaError) as error:
        cluster.controller.reassign((TOPIC, 5), [1])
    assert error.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

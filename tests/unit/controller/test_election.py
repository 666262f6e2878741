"""Who leads a partition: Kafka's PartitionChangeBuilder with eligible leader replicas (KIP-966)."""

from __future__ import annotations

from collections.abc import Collection

from hypothesis import given, settings
from hypothesis import strategies as st

from sparkonce.broker_lite.controller.election import next_state
from sparkonce.broker_lite.controller.records import NO_LEADER, PartitionState
from tests.chance import examples

STATE = PartitionState((1, 2, 3), (1, 2, 3), 1, 4, 9)


def changed(
    state: PartitionState,
    in_sync: Collection[int],
    there: Collection[int] = (1, 2, 3),
    least: int = 1,
    *,
    unclean: bool = False,
    forgetful: Collection[int] = (),
    prefer_first: bool = False,
) -> PartitionState:
    return next_state(
        state,
        in_sync,
        there.__contains__,
        least,
        unclean=unclean,
        forgetful=forgetful,
        prefer_first=prefer_first,
    )


def test_what_changes_nothing_is_the_same_state() -> None:
    assert changed(STATE, (1, 2, 3)) is STATE


def test_a_change_without_another_leader_keeps_the_leader_epoch() -> None:
    now = changed(STATE, (2, 1))
    assert now == STATE._replace(in_sync_replicas=(1, 2), partition_epoch=10)


def test_the_first_replica_in_sync_leads_next() -> None:
    now = changed(STATE, (2, 3), there=(2, 3))
    assert (now.leader, now.leader_epoch, now.partition_epoch, now.in_sync_replicas) == (2, 5, 10, (2, 3))


def test_a_leader_that_leads_well_goes_on_unless_the_preferred_one_is_asked_for() -> None:
    state = STATE._replace(leader=3)
    assert changed(state, (1, 2, 3)) is state
    assert changed(state, (1, 2, 3), prefer_first=True).leader == 1
    assert changed(state, (2, 3), prefer_first=True).leader == 3, "the preferred one is not in sync"


def test_above_the_minimum_nobody_else_is_eligible() -> None:
    assert changed(STATE, (1, 2), least=2).eligible_leader_replicas == ()


def test_below_the_minimum_those_who_were_in_sync_stay_eligible() -> None:
    now = changed(STATE, (1,), least=2)
    assert now.eligible_leader_replicas == (2, 3)
    nobody = changed(now, (), there=(), least=2)
    assert (nobody.leader, nobody.leader_epoch, nobody.last_known_leader) == (NO_LEADER, 5, 1)
    assert nobody.eligible_leader_replicas == (1, 2, 3)


def test_one_that_is_eligible_leads_alone() -> None:
    nobody = changed(changed(STATE, (1,), least=2), (), there=(), least=2)
    now = changed(nobody, (), there=(3,), least=2)
    assert (now.leader, now.in_sync_replicas, now.leader_epoch) == (3, (3,), 6)
    assert now.eligible_leader_replicas == (1, 2)
    assert now.last_known_leader == NO_LEADER


def test_back_at_the_minimum_nobody_else_is_eligible_any_more() -> None:
    now = changed(STATE, (1,), least=2)
    assert changed(now, (1, 3), least=2).eligible_leader_replicas == ()


def test_the_minimum_is_never_more_than_there_are_replicas() -> None:
    state = PartitionState((1,), (1,), 1, 0, 0)
    assert changed(state, (1,), least=5) is state


def test_the_last_one_stays_eligible() -> None:
    now = changed(STATE._replace(in_sync_replicas=(1,)), (), there=(2, 3))
    assert (now.leader, now.in_sync_replicas, now.eligible_leader_replicas) == (NO_LEADER, (), (1,))


def test_who_may_have_forgotten_is_eligible_no_more() -> None:
    nobody = changed(STATE._replace(in_sync_replicas=(1,)), (), there=())
    now = changed(nobody, (), there=(), forgetful=(1,))
    assert now.eligible_leader_replicas == ()
    assert now.leader == NO_LEADER
    assert changed(now, (), there=(2, 3)).leader == NO_LEADER, "others would lose what it has"
    assert changed(now, (), there=(1, 2, 3)).leader == 1, "it led last, and nobody knows better"


def test_who_led_last_waits_while_somebody_else_is_eligible() -> None:
    state = PartitionState((1, 2, 3), (), NO_LEADER, 5, 9, eligible_leader_replicas=(2,), last_known_leader=1)
    assert changed(state, (), there=(1,), least=2) is state
    assert changed(state, (), there=(1, 2), least=2).leader == 2


def test_uncleanly_anybody_leads_and_nobody_else_is_eligible() -> None:
    state = PartitionState((1, 2, 3), (), NO_LEADER, 5, 9, eligible_leader_replicas=(2,), last_known_leader=2)
    now = changed(state, (), there=(3,), least=2, unclean=True)
    assert (now.leader, now.in_sync_replicas, now.eligible_leader_replicas) == (3, (3,), ())


def test_cleanly_goes_before_uncleanly() -> None:
    state = PartitionState((1, 2, 3), (), NO_LEADER, 5, 9, eligible_leader_replicas=(3,), last_known_leader=2)
    assert changed(state, (), unclean=True, least=2).leader == 3
    assert changed(state._replace(eligible_leader_replicas=()), (), unclean=True).leader == 2, "it led last"


_some = st.sets(st.integers(1, 3))


@given(
    st.lists(st.tuples(_some, _some, st.integers(1, 3), st.booleans(), _some, st.booleans()), min_size=1, max_size=12)
)
@settings(max_examples=examples(150), deadline=None)
def test_whatever_comes_the_state_is_sound(
    steps: list[tuple[set[int], set[int], int, bool, set[int], bool]],
) -> None:
    state = STATE
    for in_sync, there, least, unclean, forgetful, prefer_first in steps:
        before = state
        state = changed(
            before,
            in_sync & there,
            there,
            least,
            unclean=unclean,
            forgetful=forgetful,
            prefer_first=prefer_first,
        )
        assert state.partition_epoch == before.partition_epoch + (state != before)
        assert state.leader_epoch == before.leader_epoch + (state.leader != before.leader)
        assert state.leader == NO_LEADER or state.leader in state.in_sync_replicas
        assert (state.last_known_leader == NO_LEADER) == (state.leader != NO_LEADER)
        assert not set(state.in_sync_replicas) & set(state.eligible_leader_replicas)
        assert not state.eligible_leader_replicas or len(state.in_sync_replicas) < least
        assert not forgetful & set(state.eligible_leader_replicas)

"""Every story: by the old rule the fault is there, by the new one it is not."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from itertools import pairwise

import pytest

from sparkonce.jobs.lab.story.catalogue import FAMILIES, STORIES, Story, Variant, chosen
from sparkonce.jobs.lab.story.quorum import Majority
from sparkonce.jobs.lab.story.stage import AsksOnce
from sparkonce.jobs.lab.story.view import ReplicaView, Telling

FIGURES = {
    ("high-watermark", "in-sync replicas"): {"lost": 0, "diverged": 0},
    ("acks", "acks 0"): {"lost": 2, "diverged": 0},
    ("acks", "acks 1"): {"lost": 1, "diverged": 0},
    ("acks", "acks all"): {"lost": 0, "diverged": 0},
    ("kip-101-loss", "high watermark"): {"lost": 1, "diverged": 0},
    ("kip-101-loss", "leader epoch"): {"lost": 0, "diverged": 0},
    ("kip-101-divergence", "high watermark"): {"lost": 1, "diverged": 1},
    ("kip-101-divergence", "leader epoch"): {"lost": 1, "diverged": 0},
    ("kip-279", "one question"): {"lost": 1, "diverged": 1},
    ("kip-279", "leader epoch"): {"lost": 1, "diverged": 0},
    ("kafka-7164", "same follower"): {"lost": 0, "diverged": 1},
    ("kafka-7164", "new follower"): {"lost": 0, "diverged": 0},
    ("kafka-6880", "fetch without epoch"): {"lost": 0, "diverged": 1},
    ("kafka-6880", "fetch with epoch"): {"lost": 0, "diverged": 0},
    ("kip-320-consumer", "position"): {"lost": 2, "diverged": 0, "missed": 2, "truncations": 0},
    ("kip-320-consumer", "position with epoch"): {"lost": 2, "diverged": 0, "missed": 0, "truncations": 1},
    ("kip-903", "no broker epoch"): {"lost": 2, "diverged": 0},
    ("kip-903", "broker epoch"): {"lost": 0, "diverged": 0},
    ("kafka-7128", "joins at high watermark"): {"lost": 2, "diverged": 0},
    ("kafka-7128", "joins at epoch start"): {"lost": 0, "diverged": 0},
    ("unclean-election", "unclean election"): {"lost": 2, "diverged": 0, "refused": 0},
    ("unclean-election", "clean election"): {"lost": 0, "diverged": 0, "refused": 1},
    ("kip-966", "last in sync"): {"lost": 1, "diverged": 0},
    ("kip-966", "eligible leader replicas"): {"lost": 0, "diverged": 0},
}
TELLINGS = [(story, at) for story in STORIES for at in range(len(story.variants)) if story.name != "quorum"]
IDS = [f"{story.name}-{at}" for story, at in TELLINGS]


@cache
def told(story: Story, at: int) -> Telling:
    return story.variants[at].play()


@pytest.mark.parametrize(("story", "at"), TELLINGS, ids=IDS)
def test_the_fault_is_there_by_the_old_rule_and_not_by_the_new_one(story: Story, at: int) -> None:
    telling = told(story, at)
    assert dict(telling.figures) == FIGURES[story.name, telling.rule]
    assert story.shows(story.variants[at], telling)
    assert (telling.figures[story.figure] > 0) == story.variants[at].old


def test_no_figures_are_left_over() -> None:
    assert {(story.name, told(story, at).rule) for story, at in TELLINGS} == FIGURES.keys()


@pytest.mark.parametrize(("story", "at"), TELLINGS, ids=IDS)
def test_a_story_is_the_same_whenever_it_is_told(story: Story, at: int) -> None:
    assert story.variants[at].play() == told(story, at)


def test_stories_are_told_one_at_a_time() -> None:
    """A rule is brought back in the whole process, and `sparkonce ui` makes pages on several threads."""
    (story,) = chosen("kip-101-loss")
    old, new = story.variants
    beside: list[Future[Telling]] = []
    with ThreadPoolExecutor(1) as pool:

        def tell() -> Telling:
            beside.append(pool.submit(new.play))
            return old.tell()

        assert Variant(True, tell, old.rule).play() == told(story, 0)
        assert beside[0].result() == told(story, 1)


def sound(replica: ReplicaView) -> bool:
    offsets = [cell.offset for cell in replica.cells]
    epochs = [cell.epoch for cell in replica.cells]
    return (
        offsets == list(range(len(offsets)))
        and epochs == sorted(epochs)
        and 0 <= replica.high_watermark <= replica.log_end_offset
    )


@pytest.mark.parametrize(("story", "at"), TELLINGS, ids=IDS)
def test_every_step_is_sound(story: Story, at: int) -> None:
    """Whatever goes wrong in a story, no single log is broken, and the controller does not contradict itself."""
    for step in told(story, at).steps:
        assert all(sound(replica) for replica in step.replicas), step.text
        assert step.leader == -1 or step.leader in step.in_sync_replicas
        assert not set(step.in_sync_replicas) & set(step.eligible_leader_replicas)


@pytest.mark.parametrize("story", [story for story in STORIES if len(story.variants) == 2], ids=lambda each: each.name)
def test_both_rules_are_told_of_the_same_events(story: Story) -> None:
    """They begin alike, and part where the rule makes a difference."""
    old, new = told(story, 0), told(story, 1)
    assert len(old.steps) >= 4
    assert old.steps[0] == new.steps[0]
    assert old.steps != new.steps


def test_the_high_watermark_walks_as_the_docs_say() -> None:
    (walk,) = chosen("high-watermark")
    marks = [tuple(each.high_watermark for each in step.replicas) for step in told(walk, 0).steps]
    ends = [tuple(each.log_end_offset for each in step.replicas) for step in told(walk, 0).steps]
    assert ends[:4] == [(0, 0, 0), (1, 0, 0), (1, 1, 0), (1, 1, 1)]
    assert marks[:7] == [(0, 0, 0)] * 5 + [(1, 0, 1), (1, 1, 1)]
    assert all(after[0] >= before[0] for before, after in pairwise(marks)), "the leader's only rises"


def test_a_name_may_stand_for_several() -> None:
    assert [story.name for story in chosen("kip-101")] == ["kip-101-loss", "kip-101-divergence"]
    assert list(chosen("all")) == list(STORIES)
    assert {name for names in FAMILIES.values() for name in names} <= {story.name for story in STORIES}
    with pytest.raises(KeyError):
        chosen("kip-1")


def test_one_question_that_the_leader_cannot_answer_leaves_what_is_safe() -> None:
    stage = AsksOnce(2)
    stage.produce("m1")
    stage.nodes[1].hears = False
    stage.end_leases(1)
    stage.nodes[1].hears = True
    stage.heartbeat(1)
    assert (stage.state.leader, stage.nodes[1].log.log_end_offset) == (2, 1)
    stage.fetch(1)
    assert stage.nodes[1].log.log_end_offset == 0, "broker 2 has led in epoch 1 only, and m1 is of epoch 0"


# Quorum beside in-sync replicas.


@pytest.mark.parametrize("replicas", [1, 2, 3, 4, 5, 7])
def test_a_majority_goes_on_as_long_as_there_is_one(replicas: int) -> None:
    cluster = Majority(replicas)
    died = 0
    while cluster.write(f"m{died}") and len(cluster.alive) > 1:
        cluster.fail([cluster.leader])
        died += 1
    assert died - (cluster.leader == -1) == (replicas - 1) // 2


def test_a_majority_elects_nobody_who_lacks_what_it_has_acknowledged() -> None:
    cluster = Majority(5)
    assert cluster.write("m1", copies=3)
    assert not cluster.write("m2", copies=2), "not acknowledged"
    cluster.fail([1, 2])
    assert cluster.leader == 3, "brokers 4 and 5 have nothing"
    assert cluster.serves("m1")
    assert not cluster.serves("m2")


def test_what_a_majority_and_in_sync_replicas_outlive_and_cost() -> None:
    (story,) = chosen("quorum")
    telling = story.variants[0].play()
    (table,) = telling.tables
    rows = {(row[0].split(",")[0][:10], row[1], row[0][-1]): tuple(map(int, row[2:])) for row in table.rows}
    # copies at least; crashes one by one: writes go on, records are kept; at once, the worst; ms; ms, the slowest hangs
    assert rows["a majority", "3", "t"] == (2, 1, 1, 1, 1, 1)
    assert rows["all in syn", "3", "1"] == (1, 2, 2, 0, 40, 45_000)
    assert rows["all in syn", "3", "2"] == (2, 1, 2, 1, 40, 45_000)
    assert rows["a majority", "5", "t"] == (3, 2, 2, 2, 2, 2)
    assert rows["all in syn", "5", "1"] == (1, 4, 4, 0, 40, 45_000)
    assert rows["all in syn", "5", "2"] == (2, 3, 4, 1, 40, 45_000)
    assert rows["all in syn", "5", "3"] == (3, 2, 4, 2, 40, 45_000)
    assert len(rows) == len(table.rows)
    assert telling.figures["majority_outlives"] == telling.figures["isr_outlives"] == 1

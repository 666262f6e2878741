"""All stories: what each is about, where it comes from, and the rules by which it is told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import Final

from sparkonce.broker_lite.sim.planted.state_machines import PLANTED
from sparkonce.jobs.lab.story import durability, fencing, truncation
from sparkonce.jobs.lab.story.quorum import quorum
from sparkonce.jobs.lab.story.stage import ALL
from sparkonce.jobs.lab.story.view import Telling

_ONE_AT_A_TIME: Final = Lock()
"""A rule is brought back in the whole process."""
_PLANTED: Final = {each.name: each.plant for each in PLANTED}
"""The simulator's bugs; some of them were once Kafka's rules."""


@dataclass(frozen=True, slots=True)
class Variant:
    """One rule of a story."""

    old: bool
    """Whether it is a rule that shows the fault: of former times, or one that promises less."""
    tell: Callable[[], Telling]
    rule: Callable[[], AbstractContextManager[None]] = nullcontext
    """Brings the rule back, where the cores have another one."""

    def play(self) -> Telling:
        """Tell the story."""
        with _ONE_AT_A_TIME, self.rule():
            return self.tell()


@dataclass(frozen=True, slots=True)
class Story:
    """One story; `figure` is what an old rule leaves above 0 and a new one at 0."""

    name: str
    source: str
    title: str
    figure: str
    variants: tuple[Variant, ...]

    def shows(self, variant: Variant, telling: Telling) -> bool:
        """Whether the run shows what it should: the fault with an old rule, none with a new one."""
        return (telling.figures.get(self.figure, 0) > 0) == variant.old


def _old_and_new(
    tell: Callable[..., Telling], rule: Callable[[], AbstractContextManager[None]] = nullcontext, word: str = "old"
) -> tuple[Variant, ...]:
    return Variant(True, partial(tell, **{word: True}), rule), Variant(False, partial(tell, **{word: False}))


STORIES = (
    Story(
        "high-watermark",
        "KIP-966 for its end",
        "how log end offsets and the high watermark go, step by step",
        "lost",
        (Variant(False, durability.high_watermark),),
    ),
    Story(
        "acks",
        "producer setting acks",
        "the leader dies right after a write: what acks 0, 1 and all have promised",
        "lost",
        tuple(Variant(setting != ALL, partial(durability.acks, setting)) for setting in (0, 1, ALL)),
    ),
    Story(
        "kip-101-loss",
        "KIP-101, scenario 1",
        "a follower restarts, cuts off a record that is safe, and is elected",
        "lost",
        _old_and_new(truncation.kip_101_loss, _PLANTED["truncate-to-high-watermark"]),
    ),
    Story(
        "kip-101-divergence",
        "KIP-101, scenario 2",
        "all lose power, and afterwards have different records at one offset",
        "diverged",
        _old_and_new(truncation.kip_101_divergence, _PLANTED["truncate-to-high-watermark"]),
    ),
    Story(
        "kip-279",
        "KIP-279, KAFKA-6361",
        "leadership goes there and back too fast for one question",
        "diverged",
        _old_and_new(truncation.kip_279),
    ),
    Story(
        "kafka-7164",
        "KAFKA-7164",
        "the same leader in a later epoch has cut its log meanwhile",
        "diverged",
        _old_and_new(truncation.kafka_7164, _PLANTED["same-leader-no-truncation"]),
    ),
    Story(
        "kafka-6880",
        "KAFKA-6880, KIP-320",
        "a follower that has missed two elections fetches from the leader of the third",
        "diverged",
        _old_and_new(fencing.kafka_6880),
    ),
    Story(
        "kip-320-consumer",
        "KIP-320",
        "a consumer's position lies beyond other records after an unclean election",
        "missed",
        _old_and_new(fencing.kip_320_consumer),
    ),
    Story(
        "kip-903",
        "KIP-903",
        "a leader proposes a follower that has begun anew, empty",
        "lost",
        _old_and_new(fencing.kip_903, _PLANTED["broker-epoch-not-told"]),
    ),
    Story(
        "kafka-7128",
        "KAFKA-7128",
        "a follower joins at the high watermark, before the start of the leader's epoch",
        "lost",
        _old_and_new(fencing.kafka_7128, _PLANTED["expand-before-epoch-start"]),
    ),
    Story(
        "unclean-election",
        "unclean.leader.election.enable",
        "nobody in sync is left: lose records, or wait",
        "lost",
        _old_and_new(durability.unclean_election, word="allowed"),
    ),
    Story(
        "kip-966",
        "KIP-966",
        "the last one in sync loses power, others still have everything",
        "lost",
        _old_and_new(durability.kip_966, durability.last_in_sync_stays),
    ),
    Story(
        "quorum",
        "Raft beside in-sync replicas",
        "how many failures a majority and in-sync replicas outlive, at what cost",
        "lost",
        (Variant(False, quorum),),
    ),
)

FAMILIES = {
    "all": tuple(story.name for story in STORIES),
    "kip-101": ("kip-101-loss", "kip-101-divergence"),
    "kip-320": ("kafka-6880", "kip-320-consumer"),
}
"""Names that stand for others."""


def chosen(name: str) -> Sequence[Story]:
    """Return the stories of a name, in the order of the list.

    Raises:
        KeyError: if there is none.
    """
    names = FAMILIES.get(name, (name,))
    found = [story for story in STORIES if story.name in names]
    if not found:
        raise KeyError(name)
    return found

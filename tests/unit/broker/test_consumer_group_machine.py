"""KIP-848 groups under members that behave, members that do not, lost answers, restarts and changing topics.

The invariants: a partition is never used by two members that the group knows; epochs only grow; a change that could
not be written has not happened; what is read back is what there was; left alone, a group comes to rest. Nobody who
stays is answered with an epoch below 1: its next heartbeat would be a join without what a join must have, which is
refused with INVALID_REQUEST, and that ends clients for good.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from sparkonce.broker_lite.coordinators.consumer_group_image import ConsumerGroupState, check_image
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError
from tests.chance import examples
from tests.unit.broker.consumer_group_support import REBALANCE_MS, SESSION_MS, Carried, FakeTopics, contents

CODES = {
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.UNRELEASED_INSTANCE_ID,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.GROUP_MAX_SIZE_REACHED,
}
SUBSCRIPTIONS: list[dict[str, Any]] = [
    {"topic_names": ("t",)},
    {"topic_names": ("t", "u")},
    {"topic_names": ("u", "nowhere")},
    {"topic_names": ()},
    {"topic_names": (), "topic_pattern": "[tu]"},
    {"topic_names": ("v",), "topic_pattern": "t|v"},
]
subscriptions = st.sampled_from(SUBSCRIPTIONS)
members = st.integers(0, 3)


@dataclass
class Client:
    """A member in its own process: it reports what it owns, and applies an assignment some time after it came.

    After an answer that did not come it sends all its fields, as Kafka's clients do: only a full request is surely
    answered with the assignment (GroupMetadataManager tells a change once). What it has reported
    as not owned, it uses only after the next assignment.
    """

    member_id: str
    instance_id: str | None
    epoch: int = 0
    owned: set[tuple[uuid.UUID, int]] = field(default_factory=set)
    told: set[tuple[uuid.UUID, int]] | None = None
    subscription: dict[str, Any] = field(default_factory=dict)
    unanswered: dict[str, Any] | None = None
    """What it has sent last, if no answer has come."""
    missed: bool = False
    """Whether an answer has been lost since the last one to a full request."""

    def obey(self) -> None:
        if self.told is not None:
            self.owned, self.told = self.told, None

    def report(self) -> dict[uuid.UUID, frozenset[int]]:
        topics: dict[uuid.UUID, set[int]] = {}
        for topic_id, index in self.owned:
            topics.setdefault(topic_id, set()).add(index)
        return {topic_id: frozenset(indexes) for topic_id, indexes in topics.items()}

    def says(self, owned: bool) -> dict[str, Any]:
        """The fields of its next heartbeat, with what it owns if asked for and if it has done what it was told."""
        if self.missed:
            return self.says_all()
        return {"owned": self.report()} if owned and self.told is None else {}

    def says_all(self) -> dict[str, Any]:
        self.told = None
        return {"rebalance_timeout_ms": REBALANCE_MS, "owned": self.report(), **self.subscription}


class Everything(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.carried = Carried(FakeTopics(t=3, u=2))
        self.clients: dict[int, Client] = {}
        self.made = 0
        self.epoch = 0

    # What members do.

    @initialize(settled=st.integers(0, 2), joining=st.integers(0, 2), subscription=subscriptions)
    def on_start(self, settled: int, joining: int, subscription: dict[str, Any]) -> None:
        """Begin with a group that has members, and some that have just come."""
        for number in range(settled):
            self.on_join(number, subscription, False)
        for _ in range(settled):
            self.on_round({0, 1}, {0, 1})
        for number in range(settled, settled + joining):
            self.on_join(number, subscription, False)

    @rule(number=members, subscription=subscriptions, lost=st.booleans())
    def on_join(self, number: int, subscription: dict[str, Any], lost: bool) -> None:
        if number not in self.clients:
            self.made += 1
            self.clients[number] = Client(f"m{self.made}", f"i{number}" if number % 2 else None)
        client = self.clients[number]
        client.epoch, client.owned = 0, set()
        client.subscription = subscription
        self.send(client, lost, **client.says_all())

    @rule(number=members, lost=st.booleans(), full=st.booleans(), says=st.booleans())
    def on_heartbeat(self, number: int, lost: bool, full: bool, says: bool) -> None:
        client = self.clients.get(number)
        if client is None or client.epoch <= 0:
            return
        self.send(client, lost, **(client.says_all() if full else client.says(owned=says)))

    @rule(obeying=st.sets(members), saying=st.sets(members))
    def on_round(self, obeying: set[int], saying: set[int]) -> None:
        """All send a heartbeat; some have done what they were told, some say what they own."""
        for number, client in self.clients.items():
            if number in obeying:
                client.obey()
            if client.epoch > 0:
                self.send(client, False, **client.says(owned=number in saying))
            self.holds()

    @rule(number=members, subscription=subscriptions, lost=st.booleans())
    def on_subscribe(self, number: int, subscription: dict[str, Any], lost: bool) -> None:
        client = self.clients.get(number)
        if client is not None and client.epoch > 0:
            client.subscription = {"topic_pattern": "", **subscription}
            self.send(client, lost, **{**client.says(owned=False), **client.subscription})

    @rule(number=members, lost=st.booleans())
    def on_retry(self, number: int, lost: bool) -> None:
        """The same bytes once more, as no answer has come; the group may have gone on meanwhile."""
        client = self.clients.get(number)
        if client is not None and client.unanswered is not None:
            self.send(client, lost, **client.unanswered)

    @rule(number=members, for_good=st.booleans())
    def on_leave(self, number: int, for_good: bool) -> None:
        client = self.clients.pop(number, None)
        if client is None:
            return
        client.epoch = -1 if for_good or client.instance_id is None else -2
        self.send(client, True)

    @rule(number=members)
    def on_crash(self, number: int) -> None:
        """Its session goes on; it comes back under another id."""
        self.clients.pop(number, None)

    def send(self, client: Client, lost: bool, **fields: Any) -> None:
        client.unanswered = fields if lost else None
        client.missed = lost or (client.missed and not {"owned", "rebalance_timeout_ms"} <= fields.keys())
        try:
            answer = self.carried.heartbeat(client.member_id, client.epoch, instance_id=client.instance_id, **fields)
        except KafkaError as error:
            self.check_refusal(error)
            client.epoch, client.owned, client.told, client.unanswered, client.missed = 0, set(), None, None, False
            return
        assert answer.member_epoch > 0 or answer.member_epoch == client.epoch < 0
        if lost or answer.member_epoch < 0:
            return
        client.epoch = answer.member_epoch
        if answer.assignment is not None:
            client.told = {(topic, index) for topic, indexes in answer.assignment.items() for index in indexes}

    def check_refusal(self, error: KafkaError) -> None:
        assert error.code in CODES

    # What should not be sent, and what happens around the members.

    @rule(
        number=st.integers(1, 6),
        epoch=st.integers(-2, 12),
        instance=st.sampled_from([None, "i1", "i3", "other"]),
        owned=st.sampled_from([None, {}, {uuid.UUID(int=1): frozenset({0, 1})}]),
        names=st.sampled_from([None, ("t",)]),
    )
    def on_anything(self, number: int, epoch: int, instance: str | None, owned: Any, names: Any) -> None:
        """Decided, but not taken: whatever is asked, the answer is one of the protocol's, and nothing breaks."""
        before = contents(self.carried.group.image)
        if epoch == 0:
            owned = {}  # the handler refuses a member that joins and owns something
        try:
            decision = self.carried.decide(
                f"m{number}", epoch, instance_id=instance, owned=owned, topic_names=names, rebalance_timeout_ms=1
            )
        except KafkaError as error:
            self.check_refusal(error)
        else:
            check_image(decision.image)
            assert decision.answer is not None
            assert decision.answer.member_epoch > 0 or decision.answer.member_epoch == epoch < 0
        assert contents(self.carried.group.image) == before

    @rule(ms=st.sampled_from([0, 1_000, 20_000, REBALANCE_MS]))
    def on_time(self, ms: int) -> None:
        self.carried.wait(ms)

    @rule()
    def on_restart(self) -> None:
        before = contents(self.carried.group.image)
        self.carried.restart()
        assert contents(self.carried.group.image) == before

    @rule(name=st.sampled_from(["t", "u", "v"]), count=st.integers(2, 5))
    def on_topic(self, name: str, count: int) -> None:
        topics = self.carried.topics
        found = topics.id_and_partitions(name)
        if found is None:
            topics.create(name, count)
        elif count == 5:
            topics.delete(name)
        elif count > found[1]:
            topics.grow(name, count)

    @invariant()
    def holds(self) -> None:
        image = self.carried.group.image
        check_image(image)
        assert image.epoch >= self.epoch
        self.epoch = image.epoch
        used: dict[tuple[uuid.UUID, int], str] = {}
        for client in self.clients.values():
            known = image.members.get(client.member_id)
            # One that was removed learns of it by its next heartbeat; its commits are refused meanwhile.
            if known is None or known.epoch < 0:
                continue
            for partition in client.owned:
                assert partition not in used, f"{used.get(partition)} and {client.member_id} use {partition}"
                used[partition] = client.member_id
        deadlines = set(self.carried.group.session_deadlines_ms)
        assert deadlines == set(image.members), "every member is waited for, and only so long"
        assert set(self.carried.group.rebalance_deadlines_ms) <= deadlines

    def teardown(self) -> None:
        """Left alone with the members that are alive, the group comes to rest and every partition has a user."""
        self.carried.wait(2 * SESSION_MS)
        for client in self.clients.values():
            client.epoch, client.owned, client.told = 0, set(), None
        names = set()
        for number, client in list(self.clients.items())[:4]:
            subscription = SUBSCRIPTIONS[number % 3]
            names |= set(subscription["topic_names"])
            fields = {"topic_pattern": "", **subscription}
            self.send(client, False, rebalance_timeout_ms=REBALANCE_MS, owned={}, **fields)
        living = [client for client in self.clients.values() if client.epoch > 0]
        for _ in range(4 * len(living)):
            for client in living:
                client.obey()
                self.send(client, False, owned=client.report())
            self.holds()
        for client in living:
            client.obey()
        image = self.carried.group.image
        assert image.state is (ConsumerGroupState.STABLE if living else ConsumerGroupState.EMPTY)
        everything = self.carried.topics.all_of(names) if living else set()
        assert set().union(*(client.owned for client in living)) == everything


TestEverything = Everything.TestCase
TestEverything.settings = settings(max_examples=examples(200), stateful_step_count=30, deadline=None)

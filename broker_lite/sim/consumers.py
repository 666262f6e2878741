"""Members of groups of KIP-848: they say what they own, and own what they are told.

Theory of operation: as Java's consumer of that protocol. Heartbeats say everything at first and after an error, else
what has changed. Told to give something up, a member stops using it after a while, says so, and is given what is free
then. One that is fenced, or not known any more, gives up everything and joins again.

Heartbeats are not doubled. A copy that comes after the first was answered says, in the member's former epoch, what it
owned before that answer. To the coordinator, as to Kafka's, that is a member which has not received the answer, so what
that assigned counts as not accepted. That is right for a client that asks again: it has dropped the first one's
connection.
"""

from __future__ import annotations

from sparkonce.broker_lite.coordinators.consumer_group_image import JOINING_EPOCH, LEAVING_EPOCH, STATIC_LEAVING_EPOCH
from sparkonce.broker_lite.coordinators.consumer_group_messages import Heartbeat, HeartbeatAnswer
from sparkonce.broker_lite.protocol.errors import ErrorCode
from sparkonce.broker_lite.sim.consumer_grouping import owned_of, places_of
from sparkonce.broker_lite.sim.group_clients import FIND_AGAIN, LOADING, GroupClient
from sparkonce.broker_lite.sim.ownership import Share

_JOIN_AGAIN = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH)
_ENDS = (ErrorCode.FENCED_INSTANCE_ID, ErrorCode.UNRELEASED_INSTANCE_ID)
_KNOWN = (*FIND_AGAIN, LOADING, *_JOIN_AGAIN, *_ENDS)


class ConsumerMember(GroupClient):
    """One member."""

    commit_errors = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.STALE_MEMBER_EPOCH)

    def _begin(self) -> None:
        super()._begin()
        self.member_id = f"{self.number}.{self.incarnation}"
        self._target: Share = frozenset()
        self._says_all = self._has_changed = True

    def _commit_refused(self, error: ErrorCode) -> None:
        """Wait for what the next heartbeat tells."""

    def _join(self) -> None:
        self._round += 1
        self.generation, self.share, self._target = JOINING_EPOCH, frozenset(), frozenset()
        self._says_all = True
        self._beat()
        self._fetch(self._commit)

    def _leave(self) -> None:
        epoch = LEAVING_EPOCH if self._instance_id is None else STATIC_LEAVING_EPOCH
        request, group_id = Heartbeat(self.member_id, epoch, self._instance_id), self.plan.group_id
        self._ask(lambda broker, call: broker.groups.consumer_heartbeat(call, group_id, request), lambda _: None, ())

    def _beat(self) -> None:
        full, owned = self._says_all, self.share or frozenset()
        tells = full or self._has_changed
        request = Heartbeat(
            self.member_id,
            self.generation,
            self._instance_id,
            rebalance_timeout_ms=self.plan.rebalance_ms if full else -1,
            topic_names=tuple(dict.fromkeys(topic for topic, _ in self.world.places)) if full else None,
            owned=owned_of(self.world, owned) if tells else None,
            client_id="c",
            client_host="/h",
        )

        def told(answer: HeartbeatAnswer | ErrorCode | None) -> None:
            if isinstance(answer, HeartbeatAnswer):
                self._says_all = False
                self._has_changed = owned != self.share if tells else self._has_changed
                self._take(answer)
                self._later(self.plan.session_ms // 3, self._beat)
            elif answer is not None and answer in _ENDS:
                self._restart(answer)
            elif answer in _JOIN_AGAIN:
                self._round += 1
                self._later(self.world.plan.settings.backoff_ms, self._join)
            else:
                self._says_all = True
                self._later(self.world.plan.settings.backoff_ms, self._beat)

        group_id = self.plan.group_id
        self._ask(
            lambda broker, call: broker.groups.consumer_heartbeat(call, group_id, request),
            told,
            _KNOWN,
            may_double=False,
        )

    def _take(self, answer: HeartbeatAnswer) -> None:
        self.generation = answer.member_epoch
        if answer.assignment is None:
            return
        self._target = target = places_of(self.world, answer.assignment)
        self.world.trace(
            lambda: f"member {self.number} ({self.member_id}) is told {sorted(target)} in {self.generation}"
        )
        gives_up_ms = int(self.world.rng.random() * self.plan.commit_ms) if (self.share or frozenset()) - target else 0
        self._later(gives_up_ms, self._reconcile)

    def _reconcile(self) -> None:
        if self.share != self._target:
            self.share, self._has_changed = self._target, True

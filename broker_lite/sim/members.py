"""Members of classic groups: they join, share the partitions out, send heartbeats, and join again.

Theory of operation: as Java's consumer of the classic protocol. A member joins; the first assigns; with its share
it fetches what is committed, then commits and sends heartbeats until it hears that the group rebalances, or that it is
no member any more. Some commit once more before they join again.
"""

from __future__ import annotations

from sparkonce.broker_lite.coordinators.group_messages import NO_GENERATION, Join, JoinAnswer, Sync, SyncAnswer
from sparkonce.broker_lite.protocol.errors import ErrorCode
from sparkonce.broker_lite.sim.group_clients import FIND_AGAIN, LOADING, GroupClient
from sparkonce.broker_lite.sim.ownership import decode_share, encode_share

_PROTOCOL_TYPE = "consumer"
_FENCED = (ErrorCode.FENCED_INSTANCE_ID, ErrorCode.UNKNOWN_MEMBER_ID)
_REJOIN = (*_FENCED, ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS)
_KNOWN = (*FIND_AGAIN, *_REJOIN)
_JOIN_ERRORS = (*FIND_AGAIN, *_FENCED, ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.MEMBER_ID_REQUIRED, LOADING)


class Member(GroupClient):
    """One member."""

    commit_errors = _REJOIN

    def _leave(self) -> None:
        caller = self._caller
        self._ask(lambda broker, call: broker.groups.leave(call, caller), lambda _: None, _KNOWN)

    def _commit_refused(self, error: ErrorCode) -> None:
        self._failed(error)

    def _join(self) -> None:
        self._round += 1
        self.share = None
        plan, caller = self.plan, self._caller
        join = Join(
            token=None,
            member_id=self.member_id,
            new_member_id="",
            group_instance_id=self._instance_id,
            client_id="c",
            client_host="/h",
            session_timeout_ms=plan.session_ms,
            rebalance_timeout_ms=plan.rebalance_ms,
            protocol_type=_PROTOCOL_TYPE,
            protocols=tuple((name, name.encode()) for name in plan.protocols),
            require_known_member_id=True,
            supports_skip_assignment=self._index % 2 == 0,
        )
        patience_ms = plan.rebalance_ms + plan.session_ms
        self._ask(lambda broker, call: broker.groups.join(call, caller, join), self._joined, _JOIN_ERRORS, patience_ms)

    def _joined(self, answer: JoinAnswer | None) -> None:
        if answer is None:
            self._failed(None)
        elif answer.error is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            self._join()
        elif answer.error is not ErrorCode.NONE:
            self._failed(answer.error)
        else:
            self.member_id, self.generation = answer.member_id, answer.generation
            self._sync(answer)

    def _sync(self, joined: JoinAnswer) -> None:
        leads = joined.leader == self.member_id and not joined.skip_assignment
        caller = self._caller
        sync = Sync(
            token=None,
            generation=self.generation,
            member_id=self.member_id,
            group_instance_id=self._instance_id,
            protocol_type=joined.protocol_type,
            protocol_name=joined.protocol_name,
            assignments=self._assign(joined) if leads else (),
        )
        patience_ms = self.plan.rebalance_ms
        self._ask(lambda broker, call: broker.groups.sync(call, caller, sync), self._synced, _KNOWN, patience_ms)

    def _assign(self, joined: JoinAnswer) -> tuple[tuple[str, bytes], ...]:
        """Share the partitions out, in each generation another way."""
        members = [member_id for member_id, _, _ in joined.members]
        places = self.world.places
        return tuple(
            (member_id, encode_share(places[(index + joined.generation) % len(members) :: len(members)]))
            for index, member_id in enumerate(members)
        )

    def _synced(self, answer: SyncAnswer | None) -> None:
        if answer is None or answer.error is not ErrorCode.NONE:
            self._failed(None if answer is None else answer.error)
            return
        self.share = share = decode_share(answer.assignment)
        self.world.trace(lambda: f"member {self.number} ({self.member_id}) has {sorted(share)} in {self.generation}")
        self._heartbeat()
        self._fetch(self._commit)

    def _failed(self, error: ErrorCode | None) -> None:
        """Join again, as what it is by then."""
        self._round += 1
        if error is ErrorCode.FENCED_INSTANCE_ID:
            self._restart(error)
            return
        if error is ErrorCode.REBALANCE_IN_PROGRESS and self.share and self._commits % 2:
            self._send_commit(lambda _: None)
        if error is ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id, self.generation = "", NO_GENERATION
        self.share = None
        self._later(self.world.plan.settings.backoff_ms, self._join)

    def _heartbeat(self) -> None:
        caller = self._caller

        def told(error: ErrorCode | None) -> None:
            if error in _REJOIN:
                self._failed(error)
            else:
                self._later(self.plan.session_ms // 3, self._heartbeat)

        self._ask(lambda broker, call: broker.groups.heartbeat(call, caller), told, _KNOWN)

"""An administrator that lists and describes groups, in all versions.

described    at the end a group is described correctly: its coordinator, stable, the live members, each with its
assignment
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from lab.sim.clients.client import GROUP, Address, Guest, UnreachableError
from lab.sim.judges.ownership import Share, decode_share
from lab.sim.machine.settings import FIRST_PORT
from lab.sim.scheduler import stream
from sparkonce.broker_lite.replication.invariants import ViolationError
from sparkonce.kafka.protocol.apis import ApiKey
from sparkonce.kafka.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from lab.sim.clients.groups import GroupClient
    from lab.sim.plan import GroupPlan
    from lab.sim.world import World

_INSPECTORS: Final = 0.6
"""The share of seeds with groups that have an inspector."""
_PAUSE_MS: Final = 300
_LOOKS: Final = 100
_AGAIN_MS: Final = 100
"""How long after one check the next one comes: a member may still return, for which the others join again."""

Shares = dict[str, Share]
"""The assignment of each member, by its id."""


def has_inspector(seed: int) -> bool:
    """Whether a seed, if it has groups, has an inspector."""
    return stream("inspector", seed).random() < _INSPECTORS


class Inspector(Guest):
    """Describes groups, and once more at the end."""

    def __init__(self, world: World, members: list[GroupClient]) -> None:
        """`members` are those of all groups, as far as they have started."""
        super().__init__(world)
        self._members = members

    async def work(self) -> None:
        """See `Guest`."""
        while not self.is_over:
            await self.pause(int(self.rng.random() * _PAUSE_MS))
            with suppress(UnreachableError):
                await self._shares(self.rng.choice(self.world.plan.groups))

    async def look(self) -> None:
        """See `Guest`."""
        for group in self.world.plan.groups:
            wrong: str | None = None
            for _ in range(_LOOKS):
                try:
                    wrong = await self._wrong(group)
                except UnreachableError as error:
                    wrong = str(error)
                if wrong is None:
                    break
                self._coordinators.clear()
                await self.pause(_AGAIN_MS)
            else:
                self.world.violated(ViolationError("described", f"group {group.group_id}: {wrong}"))

    async def _wrong(self, group: GroupPlan) -> str | None:
        """Return mismatches."""
        coordinator = await self.coordinator(GROUP, group.group_id)
        for machine in self.world.brokers.values():
            address = Address(machine.address, FIRST_PORT)
            listed = await self.ask(address, ApiKey.LIST_GROUPS, 5, states_filter=["Stable"], types_filter=[])
            if (group.group_id in [each.group_id for each in listed.groups]) != (address == coordinator):
                return f"broker {machine.node_id} lists {[each.group_id for each in listed.groups]}"
        living = [each for each in self._members if each.plan is group and each.alive]
        expected = {each.member_id: each.share or frozenset() for each in living}
        shares = await self._shares(group)
        return None if shares == expected else f"{shares} is described, and it is {expected}"

    async def _shares(self, group: GroupPlan) -> Shares:
        """Return a group's assignments as described.

        Raises:
            UnreachableError: if it cannot be described.
        """
        describe = self._consumer_group if group.by_heartbeats else self._classic_group
        return await describe(await self.coordinator(GROUP, group.group_id), group.group_id)

    async def _classic_group(self, address: Address, group_id: str) -> Shares:
        version = self.rng.choice((3, 4, 5, 6))
        described = await self._described(
            address, ApiKey.DESCRIBE_GROUPS, version, groups=[group_id],
            include_authorized_operations=self.rng.random() < 0.5,
        )  # fmt: skip
        if described.group_state != "Stable":
            return {}
        return {each.member_id: decode_share(each.member_assignment) for each in described.members}

    async def _consumer_group(self, address: Address, group_id: str) -> Shares:
        described = await self._described(
            address, ApiKey.CONSUMER_GROUP_DESCRIBE, self.rng.choice((0, 1)), group_ids=[group_id],
            include_authorized_operations=self.rng.random() < 0.5,
        )  # fmt: skip
        return {each.member_id: _share(each.assignment) for each in described.members}

    async def _described(self, address: Address, api_key: ApiKey, version: int, **fields: Any) -> Any:
        answer = await self.ask(address, api_key, version, **fields)
        described = answer.groups[0]
        if described.error_code:
            self._coordinators.clear()
            raise UnreachableError(ErrorCode.of(described.error_code).name)
        return described


def _share(assignment: Any) -> Share:
    return frozenset(
        (each.topic_name, partition) for each in assignment.topic_partitions for partition in each.partitions
    )

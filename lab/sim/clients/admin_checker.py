"""An administrator that checks the results of its requests: its own topics, their settings, ACLs and users.

A request without a response may be carried out at any later time, or never. One that is answered with an error may
have been carried out before it was sent again to the next controller. So each thing has several possible states
(`Belief`). Some requests name so many resources that they are handled in turns with others, and some time out.

    administered    at the end every broker shows each thing in a possible state; invalid requests are rejected
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lab.sim.clients.belief import Belief, State
from lab.sim.clients.client import Address, Guest, UnreachableError
from lab.sim.machine.settings import FIRST_PORT
from lab.sim.marks import Mark
from lab.sim.scheduler import stream
from sparkonce.broker_lite.replication.invariants import ViolationError
from sparkonce.broker_lite.security.acls import Operation, PatternType, Permission, ResourceType
from sparkonce.kafka.protocol import apis
from sparkonce.kafka.protocol.apis import ApiKey
from sparkonce.kafka.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lab.sim.machine.machine import Machine
    from lab.sim.world import World

_SEEDS: Final = 0.15
"""The share of seeds that have one."""
_PAUSE_MS: Final = 150
_LONG_MS: Final = 3_000
_LOOKS: Final = 40
_NAMES: Final = ("w0", "w1", "w2")
_MANY: Final = tuple(f"w{number}" for number in range(30))
"""More than a broker handles in one turn; most of them do not exist."""
_COUNTS: Final = (1, 2, 3, 12)
_SETTINGS: Final = {
    "retention.ms": ("100000", "200000"),
    "cleanup.policy": ("compact", "delete", "compact,delete"),
    "max.message.bytes": ("90000", "80000"),
}
_NONSENSE: Final = (("retention.ms", "soon"), ("no.such.setting", "1"), ("segment.bytes", "5"))
_USERS: Final = ("steward-a", "steward-b")
_PRINCIPAL: Final = "User:steward"
_OPERATIONS: Final = (Operation.READ, Operation.WRITE, Operation.DESCRIBE)
_SCRAM_SHA_256: Final = 1
_TOPIC, _BROKER, _GROUP = 2, 4, 32
_SET, _DELETE = 0, 1
_OWN_SOURCES: Final = {_TOPIC: 1, _BROKER: 3, _GROUP: 8}
"""Config sources in DescribeConfigs: of the resource itself; the cluster-wide default."""
_OTHER_SETTINGS: Final = {
    (_BROKER, ""): ("max.connections", ("1000", "2000")),
    (_GROUP, "steward"): ("consumer.session.timeout.ms", ("700", "800")),
}
"""A broker default, and a setting of a group that does not exist."""


class Topic(NamedTuple):
    """A topic as it should be."""

    partitions: int
    settings: frozenset[tuple[str, str]] = frozenset()


TopicState = Topic | None
Changes = Callable[[TopicState], TopicState]


def has_admin_checker(seed: int, *node_id: int) -> bool:
    """Whether a seed has one; this is drawn separately for its standalone broker."""
    return stream("steward", seed, *node_id).random() < _SEEDS


class AdminChecker(Guest):
    """Creates, changes and deletes its resources until all faults are over."""

    def __init__(self, world: World, machines: Sequence[Machine] | None = None) -> None:
        """`machines`: see `Client`."""
        super().__init__(world, machines)
        self._topics: dict[str, Belief[TopicState]] = {name: Belief(None) for name in _NAMES}
        self._rules: Belief[frozenset[tuple[str, int]]] = Belief(frozenset())
        """Topic names with operations."""
        self._others: dict[tuple[int, str], Belief[str | None]] = {each: Belief(None) for each in _OTHER_SETTINGS}
        self._users: dict[str, Belief[int]] = {name: Belief(0) for name in _USERS}
        """Iterations of each user; 0 if the user does not exist."""

    async def work(self) -> None:
        """See `Guest`."""
        actions = (
            self._create, self._create, self._create_with_nonsense, self._remove, self._grow, self._set, self._set,
            self._set_many, self._set_other, self._replace, self._describe_many, self._add_rule, self._remove_rules,
            self._set_user,
        )  # fmt: skip
        while not self.is_over:
            await self.pause(int(self.rng.random() * _PAUSE_MS))
            await self.rng.choice(actions)()

    async def _change(
        self, belief: Belief[State], change: Callable[[State], State], api_key: ApiKey, version: int, **fields: Any
    ) -> None:
        """Request a change, and note the response."""
        try:
            answer = await self.ask(self.some_broker(), api_key, version, patience_ms=_LONG_MS, **fields)
        except UnreachableError:
            belief.unanswered(change)
            return
        error = _error_of(answer)
        self.world.trace(lambda: f"admin checker: {api_key.name} v{version} {error.name}")
        if error is ErrorCode.NONE:
            self.world.mark(Mark.ADMINISTERED)
            belief.done(change)
        elif error is ErrorCode.REQUEST_TIMED_OUT:
            belief.unanswered(change)
        else:
            belief.refused(change)

    # Topics.

    async def _create(self) -> None:
        name, count = self.rng.choice(_NAMES), self.rng.choice(_COUNTS)
        settings = self._some_settings()
        new = Topic(count, frozenset(settings.items()))
        replicas = min(3, len(self.machines))
        wanted: tuple[Any, ...] = (name, count, replicas, [])
        if self.rng.random() < 0.3:
            ids = [each.node_id for each in self.machines]
            wanted = (name, -1, -1, [(index, self.rng.sample(ids, replicas)) for index in range(count)])
        await self._change(
            self._topics[name], lambda old: old or new, ApiKey.CREATE_TOPICS, self.rng.choice((2, 4, 5, 7)),
            topics=[(*wanted, list(settings.items()))], timeout_ms=2_000, validate_only=False,
        )  # fmt: skip

    def _some_settings(self) -> dict[str, str]:
        return {name: self.rng.choice(values) for name, values in _SETTINGS.items() if self.rng.random() < 0.5}

    async def _create_with_nonsense(self) -> None:
        """Request an invalid topic, or an invalid setting of a topic that may exist."""
        name, nonsense = self.rng.choice(_NAMES), self.rng.choice(_NONSENSE)
        if self.rng.random() < 0.5:
            api_key, version = ApiKey.CREATE_TOPICS, 5
            topics: list[Any] = [(name, 1, min(3, len(self.machines)), [], [nonsense])]
            fields: dict[str, Any] = {"topics": topics, "timeout_ms": 2_000, "validate_only": False}
        else:
            api_key, version = ApiKey.INCREMENTAL_ALTER_CONFIGS, 1
            resources = [(_TOPIC, name, [(nonsense[0], _SET, nonsense[1])])]
            fields = {"resources": resources, "validate_only": False}
        try:
            answer = await self.ask(self.some_broker(), api_key, version, patience_ms=_LONG_MS, **fields)
        except UnreachableError:
            return
        if _error_of(answer) is ErrorCode.NONE:
            self._violated(f"{api_key.name} accepts {nonsense}")

    async def _remove(self) -> None:
        name = self.rng.choice(_NAMES)
        await self._change(
            self._topics[name], lambda _: None, ApiKey.DELETE_TOPICS, 4, topic_names=[name], timeout_ms=2_000
        )

    async def _grow(self) -> None:
        name, count = self.rng.choice(_NAMES), self.rng.choice(_COUNTS)

        def grown(old: TopicState) -> TopicState:
            return old._replace(partitions=max(count, old.partitions)) if old else None

        await self._change(
            self._topics[name], grown, ApiKey.CREATE_PARTITIONS, 2, topics=[(name, count, None)], timeout_ms=2_000,
            validate_only=False,
        )  # fmt: skip

    async def _set(self) -> None:
        """Set or delete one setting of a topic."""
        name, setting = self.rng.choice(_NAMES), self.rng.choice(list(_SETTINGS))
        value = self.rng.choice((None, *_SETTINGS[setting]))
        operation = _DELETE if value is None else _SET
        await self._change(
            self._topics[name], _with(setting, value), ApiKey.INCREMENTAL_ALTER_CONFIGS, 1,
            resources=[(_TOPIC, name, [(setting, operation, value)])], validate_only=False,
        )  # fmt: skip

    async def _set_many(self) -> None:
        """Set one setting of all topics at once, and of many that do not exist."""
        setting = self.rng.choice(list(_SETTINGS))
        value = self.rng.choice(_SETTINGS[setting])
        change = _with(setting, value)
        resources = [(_TOPIC, name, [(setting, _SET, value)]) for name in _MANY]
        try:
            answer = await self.ask(
                self.some_broker(), ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, patience_ms=_LONG_MS, resources=resources,
                validate_only=False,
            )  # fmt: skip
        except UnreachableError:
            for belief in self._topics.values():
                belief.unanswered(change)
            return
        for each in answer.responses:
            if each.resource_name in self._topics:
                belief = self._topics[each.resource_name]
                (belief.refused if each.error_code else belief.done)(change)

    async def _set_other(self) -> None:
        """Set or delete a setting that is not a topic's."""
        resource = self.rng.choice(list(_OTHER_SETTINGS))
        setting, values = _OTHER_SETTINGS[resource]
        value = self.rng.choice((None, *values))
        operation = _DELETE if value is None else _SET
        await self._change(
            self._others[resource], lambda _: value, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1,
            resources=[(*resource, [(setting, operation, value)])], validate_only=False,
        )  # fmt: skip

    async def _replace(self) -> None:
        """Replace all settings of a topic (AlterConfigs)."""
        name, settings = self.rng.choice(_NAMES), self._some_settings()
        await self._change(
            self._topics[name], lambda old: old and old._replace(settings=frozenset(settings.items())),
            ApiKey.ALTER_CONFIGS, 1, resources=[(_TOPIC, name, list(settings.items()))], validate_only=False,
        )  # fmt: skip

    async def _describe_many(self) -> None:
        """Describe many topics and a broker, in order; or request that and disconnect."""
        machine = self.rng.choice(self.machines)
        resources = [*((_TOPIC, name, None) for name in _MANY), (_BROKER, str(machine.node_id), None)]
        address = Address(machine.address, FIRST_PORT)
        try:
            if self.rng.random() < 0.5:
                connection = await self.connection(address)
                message = apis.request(ApiKey.DESCRIBE_CONFIGS, 2, resources=resources, include_synonyms=True)
                body = apis.encode_request(message, 2)
                connection.request(ApiKey.DESCRIBE_CONFIGS, 2, body).cancel()
                await self.pause(self.rng.randrange(60))
                connection.close()
                return
            answer = await self.ask(
                address, ApiKey.DESCRIBE_CONFIGS, 2, patience_ms=_LONG_MS, resources=resources, include_synonyms=True
            )
        except UnreachableError:
            return
        if [each.resource_name for each in answer.results] != [*_MANY, str(machine.node_id)]:
            self._violated(f"DescribeConfigs tells of {[each.resource_name for each in answer.results]}")

    # ACLs and users.

    async def _add_rule(self) -> None:
        rule = (self.rng.choice(_NAMES), int(self.rng.choice(_OPERATIONS)))
        creation = (ResourceType.TOPIC, rule[0], PatternType.LITERAL, _PRINCIPAL, "*", rule[1], Permission.ALLOW)
        await self._change(self._rules, lambda old: old | {rule}, ApiKey.CREATE_ACLS, 2, creations=[tuple(creation)])

    async def _remove_rules(self) -> None:
        name = self.rng.choice(_NAMES)
        wanted = (ResourceType.TOPIC, name, PatternType.LITERAL, _PRINCIPAL, None, Operation.ANY, Permission.ANY)
        await self._change(
            self._rules, lambda old: frozenset(each for each in old if each[0] != name), ApiKey.DELETE_ACLS, 2,
            filters=[tuple(wanted)],
        )  # fmt: skip

    async def _set_user(self) -> None:
        name, iterations = self.rng.choice(_USERS), self.rng.choice((0, 4_096, 5_000))
        deletions = [] if iterations else [(name, _SCRAM_SHA_256)]
        upsertions = [(name, _SCRAM_SHA_256, iterations, b"salt", b"p" * 32)] if iterations else []
        await self._change(
            self._users[name], lambda _: iterations, ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, deletions=deletions,
            upsertions=upsertions,
        )  # fmt: skip

    # Checks at the end.

    async def look(self) -> None:
        """Read until every broker shows possible states; brokers may still have to learn of the last change."""
        for _ in range(_LOOKS):
            wrong = [each for machine in self.machines if (each := await self._wrong(machine)) is not None]
            if not wrong:
                break
            await self.back_off()
        else:
            self._violated(wrong[0])

    async def _wrong(self, machine: Machine) -> str | None:
        """Return what a broker shows that is impossible; None if nothing is."""
        address, where = Address(machine.address, FIRST_PORT), f"broker {machine.node_id}"
        try:
            for name, belief in self._topics.items():
                topic = await self._topic_of(address, name)
                if topic not in belief.states:
                    return f"{where} shows topic {name} as {topic}, and it may be {_listed(belief.states)}"
            for resource, other in self._others.items():
                value = (await self._settings_of(address, *resource)).get(_OTHER_SETTINGS[resource][0])
                if value not in other.states:
                    return f"{where} shows {resource} with {value}, and it may be {_listed(other.states)}"
            rules = await self._rules_of(address)
            if rules is not None and rules not in self._rules.states:
                return f"{where} has the rules {sorted(rules)}, and they may be {_listed(self._rules.states)}"
            users = await self._users_of(address)
        except UnreachableError as error:
            return f"{where} does not answer: {error}"
        for name, user in self._users.items():
            if users.get(name, 0) not in user.states:
                return f"{where} has user {name} with {users.get(name, 0)} iterations, not {_listed(user.states)}"
        return None

    async def _topic_of(self, address: Address, name: str) -> TopicState:
        metadata = await self.ask(address, ApiKey.METADATA, 5, topics=[(name,)], allow_auto_topic_creation=False)
        if metadata.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return None
        own = await self._settings_of(address, _TOPIC, name)
        return Topic(len(metadata.topics[0].partitions), frozenset(own.items()))

    async def _settings_of(self, address: Address, kind: int, name: str) -> dict[str, str]:
        """Return the settings set on a resource itself."""
        answer = await self.ask(
            address, ApiKey.DESCRIBE_CONFIGS, 2, resources=[(kind, name, None)], include_synonyms=False
        )
        configs = answer.results[0].configs or ()
        return {each.name: each.value for each in configs if each.config_source == _OWN_SOURCES[kind]}

    async def _rules_of(self, address: Address) -> frozenset[tuple[str, int]] | None:
        """Return its ACLs; None where brokers have no authorizer."""
        answer = await self.ask(
            address, ApiKey.DESCRIBE_ACLS, 2, resource_type_filter=ResourceType.TOPIC, resource_name_filter=None,
            pattern_type_filter=PatternType.ANY, principal_filter=_PRINCIPAL, host_filter=None,
            operation=Operation.ANY, permission_type=Permission.ANY,
        )  # fmt: skip
        if answer.error_code == ErrorCode.SECURITY_DISABLED:
            return None
        return frozenset((each.resource_name, rule.operation) for each in answer.resources for rule in each.acls)

    async def _users_of(self, address: Address) -> dict[str, int]:
        answer = await self.ask(address, ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, users=None)
        return {each.user: info.iterations for each in answer.results for info in each.credential_infos}

    def _violated(self, text: str) -> None:
        self.world.violated(ViolationError("administered", text))


def _with(setting: str, value: str | None) -> Changes:
    """Return a change of one setting of an existing topic; None deletes it."""

    def change(old: TopicState) -> TopicState:
        if old is None:
            return None
        kept = {each for each in old.settings if each[0] != setting}
        return old._replace(settings=frozenset(kept if value is None else {*kept, (setting, value)}))

    return change


def _listed(states: Iterable[object]) -> str:
    return " or ".join(sorted(map(str, states)))


def _error_of(answer: Any) -> ErrorCode:
    """Return the error of a response about one resource."""
    for name in ("topics", "responses", "results", "filter_results"):
        found = getattr(answer, name, None)
        if found:
            return ErrorCode.of(found[0].error_code)
    return ErrorCode.NONE

"""Access control lists: bindings, which of them apply, and filters. Pure.

Theory of operation: a binding ties a rule (principal, host, operation, allow or deny) to a resource by its name, by a
prefix of its name, or by `*`. A check is about one resource; the rules that apply are found by one lookup for each
distinct length of prefixes, and a deny among them overrides every allow. A resource without rules for any
principal is open or closed to all by a setting. As in Kafka's StandardAuthorizerData.

It compares the host of a rule only with the client's address in the spelling of Java's `InetAddress.getHostAddress`:
a client that uses IPv4 on an IPv6 socket is at `127.0.0.1`, and IPv6 is written out, as
`0:0:0:0:0:0:0:1`. A rule with an address in another spelling matches no client.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

WILDCARD: Final = "*"
CLUSTER_NAME: Final = "kafka-cluster"
USER_PREFIX: Final = "User:"
EVERYONE: Final = "User:*"
ANONYMOUS: Final = "User:ANONYMOUS"


class ResourceType(IntEnum):
    """Kinds of resources, by Kafka's numbers (`org.apache.kafka.common.resource.ResourceType`)."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """The kind of a name's match (`PatternType`); ANY and MATCH are for filters."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(IntEnum):
    """An operation on a resource (`AclOperation`)."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(IntEnum):
    """Whether a rule allows or denies (`AclPermissionType`)."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


SUPPORTED_OPERATIONS: Final = {
    ResourceType.TOPIC: (
        Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DESCRIBE, Operation.DELETE, Operation.ALTER,
        Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        Operation.READ, Operation.DESCRIBE, Operation.DELETE, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        Operation.CREATE, Operation.CLUSTER_ACTION, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE, Operation.ALTER, Operation.DESCRIBE,
    ),
    ResourceType.TRANSACTIONAL_ID: (Operation.DESCRIBE, Operation.WRITE, Operation.TWO_PHASE_COMMIT),
    ResourceType.DELEGATION_TOKEN: (Operation.DESCRIBE,),
    ResourceType.USER: (Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS),
}  # fmt: skip
"""The operations on a resource of each type (Kafka's AclEntry): the bits of `authorized_operations`."""

# An allow of one of these also allows the operations that it implies; a deny denies only itself.
_ALLOWED_BY: Final[dict[int, frozenset[Operation]]] = {
    Operation.DESCRIBE: frozenset(
        {Operation.DESCRIBE, Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER, Operation.ALL}
    ),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS, Operation.ALL}),
}


class Rule(NamedTuple):
    """The principal, host, operation and permission of a binding."""

    principal: str
    host: str
    operation: int
    permission: int


class Binding(NamedTuple):
    """A rule and the resources that it applies to."""

    resource_type: int
    name: str
    pattern_type: int
    rule: Rule


@dataclass(frozen=True, slots=True)
class BindingFilter:
    """A filter of bindings; None, and ANY, match everything (Kafka's AclBindingFilter)."""

    resource_type: int = ResourceType.ANY
    name: str | None = None
    pattern_type: int = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: int = Operation.ANY
    permission: int = Permission.ANY

    def matches(self, binding: Binding) -> bool:
        """Whether a binding matches."""
        rule = binding.rule
        return (
            self.resource_type in (ResourceType.ANY, binding.resource_type)
            and self._matches_name(binding)
            and self.principal in (None, rule.principal)
            and self.host in (None, rule.host)
            and self.operation in (Operation.ANY, rule.operation)
            and self.permission in (Permission.ANY, rule.permission)
        )

    def _matches_name(self, binding: Binding) -> bool:
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, binding.pattern_type):
            return False
        if self.name is None:
            return True
        if self.pattern_type == PatternType.MATCH:
            # Not the name itself, but the bindings that apply to a resource of that name.
            if binding.pattern_type == PatternType.PREFIXED:
                return self.name.startswith(binding.name)
            return binding.name in (self.name, WILDCARD)
        return self.name == binding.name


class AclTable:
    """All bindings, indexed for lookups."""

    def __init__(self, bindings: Iterable[Binding] = ()) -> None:
        self._bindings: set[Binding] = set()
        self._rules: dict[tuple[int, int, str], list[Rule]] = {}
        self._prefix_lengths: dict[int, dict[int, int]] = {}
        for binding in bindings:
            self.add(binding)

    def __len__(self) -> int:
        return len(self._bindings)

    def __iter__(self) -> Iterator[Binding]:
        return iter(sorted(self._bindings))

    def __contains__(self, binding: object) -> bool:
        return binding in self._bindings

    def add(self, binding: Binding) -> None:
        """Add a binding; does nothing if it exists."""
        if binding in self._bindings:
            return
        self._bindings.add(binding)
        self._rules.setdefault((binding.resource_type, binding.pattern_type, binding.name), []).append(binding.rule)
        if binding.pattern_type == PatternType.PREFIXED:
            lengths = self._prefix_lengths.setdefault(binding.resource_type, {})
            lengths[len(binding.name)] = lengths.get(len(binding.name), 0) + 1

    def remove(self, binding: Binding) -> None:
        """Remove an existing binding."""
        self._bindings.remove(binding)
        key = (binding.resource_type, binding.pattern_type, binding.name)
        rules = self._rules[key]
        rules.remove(binding.rule)
        if not rules:
            del self._rules[key]
        if binding.pattern_type == PatternType.PREFIXED:
            lengths = self._prefix_lengths[binding.resource_type]
            lengths[len(binding.name)] -= 1
            if not lengths[len(binding.name)]:
                del lengths[len(binding.name)]

    def select(self, wanted: BindingFilter) -> list[Binding]:
        """Return the bindings that match a filter, in a fixed order."""
        return sorted(binding for binding in self._bindings if wanted.matches(binding))

    def allows(
        self, principal: str, host: str, operation: int, resource_type: int, name: str, allow_if_none: bool
    ) -> bool:
        """Decide whether `principal` may do `operation` to one resource; `allow_if_none` if it has no rules."""
        found = allowed = False
        for rules in self._about(resource_type, name):
            found = True
            for rule in rules:
                if _is_about(rule, principal, host):
                    if rule.permission == Permission.DENY:
                        if rule.operation in (operation, Operation.ALL):
                            return False
                    elif _permits(rule.operation, operation):
                        allowed = True
        return allowed if found else allow_if_none

    def allows_any(self, principal: str, host: str, operation: int, resource_type: int, allow_if_none: bool) -> bool:
        """Decide whether there can be a resource of this type that `principal` may do `operation` to.

        As Kafka's `Authorizer.authorizeByResourceType`: an allow counts unless a deny covers all of it. Kafka also
        checks a resource with the name "hardcode"; so do we, for the same results.
        """
        if self.allows(principal, host, operation, resource_type, "hardcode", allow_if_none):
            return True
        allows: set[tuple[int, str]] = set()
        denies: set[tuple[int, str]] = set()
        for (kind, pattern_type, name), rules in self._rules.items():
            for rule in rules if kind == resource_type else ():
                # No implied operations here: only the operation itself, or ALL.
                if _is_about(rule, principal, host) and rule.operation in (operation, Operation.ALL):
                    (denies if rule.permission == Permission.DENY else allows).add((pattern_type, name))
        everything = (PatternType.LITERAL, WILDCARD)
        if everything in denies:
            return False
        return everything in allows or any(not _covered(*allow, denies) for allow in allows)

    def _about(self, resource_type: int, name: str) -> Iterator[Collection[Rule]]:
        rules = self._rules
        literal = rules.get((resource_type, PatternType.LITERAL, name))
        if literal:
            yield literal
        wildcard = rules.get((resource_type, PatternType.LITERAL, WILDCARD)) if name != WILDCARD else None
        if wildcard:
            yield wildcard
        for length in self._prefix_lengths.get(resource_type, ()):
            if length <= len(name):
                prefixed = rules.get((resource_type, PatternType.PREFIXED, name[:length]))
                if prefixed:
                    yield prefixed


def _permits(granted: int, operation: int) -> bool:
    implying = _ALLOWED_BY.get(operation)
    if implying is not None:
        return granted in implying
    return granted in (operation, Operation.ALL)


def _is_about(rule: Rule, principal: str, host: str) -> bool:
    return rule.principal in (principal, EVERYONE) and rule.host in (host, WILDCARD)


def _covered(pattern_type: int, name: str, denies: set[tuple[int, str]]) -> bool:
    """Whether a deny covers everything that an allow of this pattern opens."""
    if pattern_type == PatternType.LITERAL and (pattern_type, name) in denies:
        return True
    return any((PatternType.PREFIXED, name[:length]) in denies for length in range(1, len(name) + 1))


def operation_bits(operations: Iterable[int]) -> int:
    """Return operations as the bit field of `authorized_operations`."""
    bits = 0
    for operation in operations:
        bits |= 1 << operation
    return bits


def host_address(address: str, scope_id: int = 0) -> str:
    """Return an address as Java writes it; other text is returned unchanged.

    Args:
        address: in any spelling.
        scope_id: of a link-local IPv6 address, 0 if it has none.
    """
    if ":" not in address:
        return address
    packed = packed_address(address)
    if packed is None:
        return address
    host = host_of(packed)
    return f"{host}%{scope_id}" if scope_id and ":" in host else host


def host_of(packed: bytes) -> str:
    """Return an address of 4 or 16 bytes as Java writes it. Raises ValueError for another size."""
    from ipaddress import IPv4Address, ip_address  # imported lazily: most brokers do not need it

    found = ip_address(packed)
    if isinstance(found, IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return ":".join(f"{int(group, 16):x}" for group in found.exploded.split(":"))


def packed_address(host: str) -> bytes | None:
    """Return the bytes of an address without its scope; None if it is no address."""
    from ipaddress import ip_address

    try:
        return ip_address(host.partition("%")[0]).packed
    except ValueError:
        return None


def right_spelling(host: str) -> str | None:
    """Return the spelling of an address that a rule needs to match, if this one is different."""
    packed = packed_address(host)
    right = None if packed is None else host_of(packed)
    return None if right == host.partition("%")[0] else right

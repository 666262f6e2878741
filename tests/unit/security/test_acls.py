"""Access control lists against a naive model, and the examples of Kafka's rules."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkonce.broker_lite.security.acls import (
    EVERYONE,
    SUPPORTED_OPERATIONS,
    AclTable,
    Binding,
    BindingFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    Rule,
    operation_bits,
)

ALICE, BOB = "User:alice", "User:bob"
NAMES = ["*", "a", "ab", "abc", "b", "hardcode", "hard"]
PRINCIPALS = [ALICE, BOB, EVERYONE]
HOSTS = ["*", "10.0.0.1", "10.0.0.2"]
TYPES = [ResourceType.TOPIC, ResourceType.GROUP]
OPERATIONS = [op for op in Operation if op not in (Operation.UNKNOWN, Operation.ANY)]
FEW = [Operation.ALL, Operation.READ, Operation.WRITE, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS,
       Operation.ALTER_CONFIGS, Operation.ALTER]  # fmt: skip
PERMISSIONS = [Permission.ALLOW, Permission.DENY]

rules = st.builds(
    Rule, st.sampled_from(PRINCIPALS), st.sampled_from(HOSTS), st.sampled_from(FEW), st.sampled_from(PERMISSIONS)
)
bindings = st.builds(
    Binding,
    st.sampled_from(TYPES),
    st.sampled_from(NAMES),
    st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
    rules,
)
tables = st.lists(bindings, max_size=12)


def covers(binding: Binding, resource_type: int, name: str) -> bool:
    if binding.resource_type != resource_type:
        return False
    if binding.pattern_type == PatternType.PREFIXED:
        return name.startswith(binding.name)
    return binding.name in (name, "*")


def is_about(rule: Rule, principal: str, host: str) -> bool:
    return rule.principal in (principal, EVERYONE) and rule.host in (host, "*")


def grants(rule: Rule, operation: int) -> bool:
    if rule.permission == Permission.DENY:
        return rule.operation in (operation, Operation.ALL)
    implied = {
        Operation.READ: {Operation.DESCRIBE},
        Operation.WRITE: {Operation.DESCRIBE},
        Operation.DELETE: {Operation.DESCRIBE},
        Operation.ALTER: {Operation.DESCRIBE},
        Operation.ALTER_CONFIGS: {Operation.DESCRIBE_CONFIGS},
        Operation.ALL: set(Operation),
    }
    return operation == rule.operation or operation in implied.get(Operation(rule.operation), ())


def naive(
    found: list[Binding], principal: str, host: str, operation: int, resource_type: int, name: str, default: bool
) -> bool:
    relevant = [binding.rule for binding in found if covers(binding, resource_type, name)]
    hits = [rule.permission for rule in relevant if is_about(rule, principal, host) and grants(rule, operation)]
    if Permission.DENY in hits:
        return False
    return Permission.ALLOW in hits if relevant else default


def naive_any(
    found: list[Binding], principal: str, host: str, operation: int, resource_type: int, default: bool
) -> bool:
    if naive(found, principal, host, operation, resource_type, "hardcode", default):
        return True
    exact = [
        binding
        for binding in found
        if binding.resource_type == resource_type
        and is_about(binding.rule, principal, host)
        and binding.rule.operation in (operation, Operation.ALL)
    ]
    denies = [binding for binding in exact if binding.rule.permission == Permission.DENY]
    allows = [binding for binding in exact if binding.rule.permission == Permission.ALLOW]

    def dominated(allow: Binding) -> bool:
        everything = allow.name == "*" and allow.pattern_type == PatternType.LITERAL
        for deny in denies:
            if deny.pattern_type == PatternType.LITERAL and deny.name == "*":
                return True
            if everything:
                continue
            if deny.pattern_type == PatternType.PREFIXED and allow.name.startswith(deny.name):
                return True
            if deny.pattern_type == allow.pattern_type == PatternType.LITERAL and deny.name == allow.name:
                return True
        return False

    return any(not dominated(allow) for allow in allows)


@given(tables, st.sampled_from([ALICE, BOB]), st.sampled_from(HOSTS[1:]), st.sampled_from(OPERATIONS),
       st.sampled_from(TYPES), st.sampled_from([*NAMES, "abcd", "other"]), st.booleans())  # fmt: skip
def test_decisions_are_those_of_a_naive_model(
    found: list[Binding], principal: str, host: str, operation: int, kind: int, name: str, default: bool
) -> None:
    table = AclTable(found)
    expected = naive(found, principal, host, operation, kind, name, default)
    assert table.allows(principal, host, operation, kind, name, default) == expected


@given(tables, st.sampled_from([ALICE, BOB]), st.sampled_from(HOSTS[1:]), st.sampled_from(FEW),
       st.sampled_from(TYPES), st.booleans())  # fmt: skip
def test_whether_there_can_be_any_resource(
    found: list[Binding], principal: str, host: str, operation: int, kind: int, default: bool
) -> None:
    expected = naive_any(found, principal, host, operation, kind, default)
    assert AclTable(found).allows_any(principal, host, operation, kind, default) == expected


@given(tables, tables)
def test_what_was_removed_decides_nothing(kept: list[Binding], gone: list[Binding]) -> None:
    table = AclTable([*kept, *gone])
    for binding in set(gone) - set(kept):
        table.remove(binding)
    assert list(table) == sorted(set(kept))
    for name in NAMES:
        expected = naive(kept, ALICE, "10.0.0.1", Operation.READ, ResourceType.TOPIC, name, True)
        assert table.allows(ALICE, "10.0.0.1", Operation.READ, ResourceType.TOPIC, name, True) == expected


filters = st.builds(
    BindingFilter,
    st.sampled_from([ResourceType.ANY, *TYPES]),
    st.sampled_from([None, *NAMES]),
    st.sampled_from([PatternType.ANY, PatternType.MATCH, PatternType.LITERAL, PatternType.PREFIXED]),
    st.sampled_from([None, *PRINCIPALS]),
    st.sampled_from([None, *HOSTS]),
    st.sampled_from([Operation.ANY, *FEW]),
    st.sampled_from([Permission.ANY, *PERMISSIONS]),
)


@given(tables, filters)
def test_a_filter_selects_as_the_naive_one(found: list[Binding], wanted: BindingFilter) -> None:
    def selected(binding: Binding) -> bool:
        checks = [
            wanted.resource_type in (ResourceType.ANY, binding.resource_type),
            wanted.principal is None or wanted.principal == binding.rule.principal,
            wanted.host is None or wanted.host == binding.rule.host,
            wanted.operation in (Operation.ANY, binding.rule.operation),
            wanted.permission in (Permission.ANY, binding.rule.permission),
        ]
        if wanted.pattern_type == PatternType.MATCH:
            checks.append(wanted.name is None or covers(binding, binding.resource_type, wanted.name))
        else:
            checks.append(wanted.pattern_type in (PatternType.ANY, binding.pattern_type))
            checks.append(wanted.name is None or wanted.name == binding.name)
        return all(checks)

    assert AclTable(found).select(wanted) == sorted({binding for binding in found if selected(binding)})


def allow(operation: Operation, principal: str = ALICE, permission: Permission = Permission.ALLOW) -> Binding:
    return Binding(ResourceType.TOPIC, "t", PatternType.LITERAL, Rule(principal, "*", operation, permission))


@pytest.mark.parametrize("granted", [Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER])
def test_an_allow_implies_describe_and_a_deny_does_not(granted: Operation) -> None:
    topic = (ResourceType.TOPIC, "t", False)
    assert AclTable([allow(granted)]).allows(ALICE, "h", Operation.DESCRIBE, *topic)
    denied = AclTable([allow(Operation.ALL), allow(granted, permission=Permission.DENY)])
    assert denied.allows(ALICE, "h", Operation.DESCRIBE, *topic)
    assert not denied.allows(ALICE, "h", granted, *topic)


def test_a_resource_without_rules_follows_the_setting_and_one_with_others_rules_is_closed() -> None:
    table = AclTable([allow(Operation.READ)])
    assert not table.allows(BOB, "h", Operation.READ, ResourceType.TOPIC, "t", True)
    assert table.allows(BOB, "h", Operation.READ, ResourceType.TOPIC, "u", True)
    assert not table.allows(BOB, "h", Operation.READ, ResourceType.TOPIC, "u", False)


def test_bits_are_numbered_as_in_kafka() -> None:
    assert operation_bits(SUPPORTED_OPERATIONS[ResourceType.GROUP]) == 0b1101_0100_1000

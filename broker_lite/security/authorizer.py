"""The authorizer of the broker: access control lists in a file, super users, and the checks of handlers.

Theory of operation: without an authorizer everything is allowed, and a check is one comparison. With one, each
decision is cached until the lists change, so that the hot path is one lookup. The file is rewritten, as a whole and
durably, before a change is acknowledged or visible; it is JSON, so that it can be read and repaired manually.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from typing import Any, Final, Protocol

from sparkonce.broker_lite.log.storage import Files
from sparkonce.broker_lite.security.acls import (
    CLUSTER_NAME,
    SUPPORTED_OPERATIONS,
    USER_PREFIX,
    AclTable,
    Binding,
    BindingFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    Rule,
    operation_bits,
    right_spelling,
)
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError
from sparkonce.settings import SettingError

logger = logging.getLogger(__name__)

ACLS_FILE: Final = "acls.json"
MAX_ACLS: Final = 100_000
MAX_CACHED_DECISIONS: Final = 100_000
MAX_LOGGED_HOSTS: Final = 10
MAX_LOGGED_NAME: Final = 249
"""Kafka's maximum length of a topic name; a client may send longer ones."""


class _Asker(Protocol):
    """The sender of a request."""

    @property
    def principal(self) -> str: ...
    @property
    def client_host(self) -> str: ...


class _HasAuthorizer(Protocol):
    @property
    def authorizer(self) -> Authorizer | None: ...
    def note_refusal(self, text: str) -> bool: ...


def authorized(
    broker: _HasAuthorizer,
    request: _Asker,
    operation: Operation,
    resource_type: ResourceType,
    name: str,
    *,
    log_denial: bool = True,
) -> bool:
    """Whether the client may do `operation` to this resource; always True while no authorizer is configured.

    A denial is logged, up to a rate; but not for resources that the client did not name, as in lists of all.
    """
    authorizer = broker.authorizer
    if authorizer is None or authorizer.allows(request.principal, request.client_host, operation, resource_type, name):
        return True
    if log_denial:
        broker.note_refusal(
            f"{request.principal} at {request.client_host} is denied {operation.name} on {resource_type.name} "
            f"{name[:MAX_LOGGED_NAME]!r}"
        )
    return False


def authorized_on_cluster(
    broker: _HasAuthorizer, request: _Asker, operation: Operation, *, log_denial: bool = True
) -> bool:
    """Whether the client may do `operation` to the cluster, as `authorized`."""
    if broker.authorizer is None:
        return True
    return authorized(broker, request, operation, ResourceType.CLUSTER, CLUSTER_NAME, log_denial=log_denial)


def authorized_on_any(
    broker: _HasAuthorizer, request: _Asker, operation: Operation, resource_type: ResourceType
) -> bool:
    """Whether there can be a resource of this type that the client may do `operation` to (KIP-679)."""
    authorizer = broker.authorizer
    return authorizer is None or authorizer.allows_any(request.principal, request.client_host, operation, resource_type)


def authorized_operations(broker: _HasAuthorizer, request: _Asker, resource_type: ResourceType, name: str) -> int:
    """Return the client's operations on this resource, as the bit field of KIP-430."""
    return operation_bits(
        operation
        for operation in SUPPORTED_OPERATIONS[resource_type]
        if authorized(broker, request, operation, resource_type, name, log_denial=False)
    )


def super_users(setting: str) -> frozenset[str]:
    """Parse `super.users`, separated by semicolons. Raises SettingError for one without its type, `User:`."""
    found = frozenset(name.strip() for name in setting.split(";") if name.strip())
    for each in sorted(found):
        if not each.startswith(USER_PREFIX) or each == USER_PREFIX:
            raise SettingError(f"super.users: {each!r} is nobody: expected User:<name>, as in User:admin;User:root")
    return found


class Authorizer:
    """Decides by super users and by the lists in `acls.json`."""

    def __init__(self, storage: Files, directory: str, supers: Iterable[str] = (), allow_if_none: bool = False) -> None:
        """Load the lists. Raises SecurityFileError if the file is invalid."""
        self._storage = storage
        self._path = f"{directory}/{ACLS_FILE}"
        self._super_users = frozenset(supers)
        self._allow_if_none = allow_if_none
        self._table = self._read()
        self._decisions: dict[tuple[str, str, int, int, str], bool] = {}

    def reload(self) -> None:
        """Read the file again, as another writer has replaced it; raises as the constructor."""
        self._table = self._read()
        self._decisions.clear()

    def _read(self) -> AclTable:
        table = AclTable(_read(self._storage, self._path))
        _warn_of_hosts(table)
        return table

    def allows(self, principal: str, host: str, operation: int, resource_type: int, name: str) -> bool:
        """Whether `principal` at `host` may do `operation` to one resource."""
        key = (principal, host, operation, resource_type, name)
        decision = self._decisions.get(key)
        if decision is None:
            decision = principal in self._super_users or self._table.allows(*key, self._allow_if_none)
            if len(self._decisions) >= MAX_CACHED_DECISIONS:
                self._decisions.clear()
            self._decisions[key] = decision
        return decision

    def allows_any(self, principal: str, host: str, operation: int, resource_type: int) -> bool:
        """Whether there can be a resource of this type that `principal` may do `operation` to."""
        if principal in self._super_users:
            return True
        return self._table.allows_any(principal, host, operation, resource_type, self._allow_if_none)

    def select(self, wanted: BindingFilter) -> list[Binding]:
        """Return the bindings that match a filter."""
        return self._table.select(wanted)

    def add(self, bindings: Iterable[Binding]) -> None:
        """Add bindings; when this returns they are on the disk and in effect.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR if they cannot be written, POLICY_VIOLATION if there are too many; then
                nothing has changed.
        """
        new = {binding for binding in bindings if binding not in self._table}
        if len(self._table) + len(new) > MAX_ACLS:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, f"the broker keeps at most {MAX_ACLS} ACLs")
        if new:
            self._write([*self._table, *new])
            for binding in new:
                self._table.add(binding)
            self._decisions.clear()
            _warn_of_hosts(new)

    def remove(self, bindings: Iterable[Binding]) -> None:
        """Remove bindings, as `add`; those that do not exist are ignored."""
        gone = {binding for binding in bindings if binding in self._table}
        if gone:
            self._write([binding for binding in self._table if binding not in gone])
            for binding in gone:
                self._table.remove(binding)
            self._decisions.clear()

    def _write(self, bindings: Iterable[Binding]) -> None:
        acls = [_to_json(binding) for binding in sorted(bindings)]
        text = json.dumps({"version": 1, "acls": acls}, indent=1)
        try:
            self._storage.write(self._path, text.encode(), durable=True)
        except OSError as error:
            logger.error("cannot write %s: %s", self._path, error)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the ACLs cannot be written") from error


def _warn_of_hosts(bindings: Iterable[Binding]) -> None:
    """Log the rules that match no client, since their address is not spelled as Kafka compares it."""
    hosts = sorted({binding.rule.host for binding in bindings})
    wrong = [f"{host} (write {right})" for host in hosts if (right := right_spelling(host)) is not None]
    if wrong:
        shown = ", ".join(wrong[:MAX_LOGGED_HOSTS])
        logger.warning("ACLs with these %d hosts apply to no client, as in Kafka: %s", len(wrong), shown)


class SecurityFileError(Exception):
    """A file of access control lists or credentials cannot be read; to continue would lock out or let in anyone."""


def _read(storage: Files, path: str) -> list[Binding]:
    try:
        content = json.loads(storage.read(path))
        if content["version"] != 1:
            raise ValueError(f"version {content['version']}")
        return [_from_json(acl) for acl in content["acls"]]
    except FileNotFoundError:
        return []
    except (ValueError, KeyError, TypeError) as error:
        raise SecurityFileError(f"{path} holds no ACLs of version 1 ({error}): mend it, or put a copy back") from error


def _to_json(binding: Binding) -> dict[str, str]:
    rule = binding.rule
    return {
        "resourceType": ResourceType(binding.resource_type).name,
        "name": binding.name,
        "patternType": PatternType(binding.pattern_type).name,
        "principal": rule.principal,
        "host": rule.host,
        "operation": Operation(rule.operation).name,
        "permission": Permission(rule.permission).name,
    }


def _from_json(acl: dict[str, Any]) -> Binding:
    rule = Rule(acl["principal"], acl["host"], Operation[acl["operation"]], Permission[acl["permission"]])
    return Binding(ResourceType[acl["resourceType"]], acl["name"], PatternType[acl["patternType"]], rule)

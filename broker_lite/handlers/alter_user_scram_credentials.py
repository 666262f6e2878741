"""AlterUserScramCredentials v0 (KIP-554); users in the settings cannot be removed. Absent: nothing."""

from __future__ import annotations

from collections import Counter
from typing import Any

from sparkonce.broker_lite.node.broker import Broker
from sparkonce.broker_lite.node.forwarding import by_the_controller
from sparkonce.broker_lite.node.request import Body, Request
from sparkonce.broker_lite.node.turns import ITEM
from sparkonce.broker_lite.security.acls import Operation
from sparkonce.broker_lite.security.authorizer import authorized_on_cluster
from sparkonce.broker_lite.security.credentials import Key
from sparkonce.broker_lite.security.scram import MAX_ITERATIONS, SCRAM_MECHANISMS, ScramCredential, ScramMechanism
from sparkonce.kafka.protocol import apis
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError

MAX_USER_NAME_LENGTH = 1024
MAX_SALT_BYTES = 1024
_BY_NUMBER = {mechanism.number: mechanism for mechanism in SCRAM_MECHANISMS.values()}


@by_the_controller
async def handle(broker: Broker, request: Request) -> Body:
    """Remove and set credentials, each on its own; acknowledged once they are on the disk."""
    wanted = request.message()
    errors: dict[str, KafkaError | None] = {}
    removals: dict[str, Key] = {}
    additions: dict[str, tuple[Key, ScramCredential]] = {}
    times = Counter([each.name for each in (*wanted.deletions, *wanted.upsertions)])
    allowed = authorized_on_cluster(broker, request, Operation.ALTER)
    for each in (*wanted.deletions, *wanted.upsertions):
        errors[each.name] = None
        await broker.turns.spend(request, ITEM)
        try:
            if not allowed:
                raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "ALTER on the cluster is not allowed")
            if times[each.name] > 1:
                raise KafkaError(
                    ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request"
                )
            key = (_mechanism(each).name, each.name)
            if hasattr(each, "salted_password"):
                additions[each.name] = key, _credential(each)
            elif not broker.scram_credentials.is_kept(*key):
                raise KafkaError(
                    ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist"
                )
            else:
                removals[each.name] = key
        except KafkaError as error:
            errors[each.name] = error
    if removals or additions:
        try:
            broker.scram_credentials.change(removals.values(), dict(additions.values()))
        except KafkaError as error:
            if error.code is ErrorCode.NOT_CONTROLLER:
                raise
            errors.update(dict.fromkeys((*removals, *additions), error))
    return request.response(results=[_result(request, user, error) for user, error in errors.items()])


def _mechanism(wanted: Any) -> ScramMechanism:
    if not wanted.name:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    mechanism = _BY_NUMBER.get(wanted.mechanism)
    if mechanism is None:
        raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    return mechanism


def _credential(wanted: Any) -> ScramCredential:
    mechanism = _mechanism(wanted)
    if wanted.iterations < mechanism.min_iterations:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if wanted.iterations > MAX_ITERATIONS:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    if len(wanted.name) > MAX_USER_NAME_LENGTH or len(wanted.salt) > MAX_SALT_BYTES:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "the user's name or the salt is too long")
    return ScramCredential.of_salted(mechanism, bytes(wanted.salt), bytes(wanted.salted_password), wanted.iterations)


def _result(request: Request, user: str, error: KafkaError | None) -> Any:
    return apis.response_class(request.api_key).AlterUserScramCredentialsResult(
        version=request.version,
        user=user,
        error_code=int(error.code if error is not None else ErrorCode.NONE),
        error_message=error.message if error is not None else None,
    )

"""DescribeUserScramCredentials v0 (KIP-554): users, also those in the settings. Absent: nothing."""

from __future__ import annotations

from collections import Counter

from sparkonce.broker_lite.node.broker import Broker
from sparkonce.broker_lite.node.request import Body, Request
from sparkonce.broker_lite.security.acls import Operation
from sparkonce.broker_lite.security.authorizer import authorized_on_cluster
from sparkonce.broker_lite.security.scram import SCRAM_MECHANISMS
from sparkonce.kafka.protocol import apis
from sparkonce.kafka.protocol.errors import ErrorCode


async def handle(broker: Broker, request: Request) -> Body:
    """Return the users, with their mechanisms and numbers of iterations."""
    wanted = request.message()
    if not authorized_on_cluster(broker, request, Operation.DESCRIBE):
        return request.response(error_code=int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED), error_message=None, results=[])
    known = broker.scram_credentials.users()
    asked = Counter([user.name for user in wanted.users or ()] or list(known))
    types, version = apis.response_class(request.api_key), request.version
    kind = types.DescribeUserScramCredentialsResult
    results = []
    for user, times in asked.items():
        error, text = ErrorCode.NONE, None
        if times > 1:
            error, text = ErrorCode.DUPLICATE_RESOURCE, f"the request names user {user} more than once"
        elif user not in known:
            error, text = ErrorCode.RESOURCE_NOT_FOUND, f"user {user} has no SCRAM credentials"
        infos = [
            kind.CredentialInfo(version=version, mechanism=SCRAM_MECHANISMS[name].number, iterations=each.iterations)
            for name, each in (known[user].items() if error is ErrorCode.NONE else ())
        ]
        results.append(
            kind(version=version, user=user, error_code=int(error), error_message=text, credential_infos=infos)
        )
    return request.response(error_code=0, error_message=None, results=results)

"""ApiVersions, versions 0 to 4; an unknown version is answered in version 0 with UNSUPPORTED_VERSION (KIP-511).

Hand-written because it is the first request of every client, and the generated codecs take longer to load than the
broker to start. The features (KIP-584) are those that clients check; they cannot be changed here.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable
from functools import cache

from sparkonce.broker_lite.node.broker import Broker
from sparkonce.broker_lite.node.request import Body, Request
from sparkonce.kafka.protocol.apis import AMONG_BROKERS, APIS, ApiKey, is_flexible, serves
from sparkonce.kafka.protocol.errors import ErrorCode
from sparkonce.kafka.protocol.primitives import Reader, put_array_length, put_string, put_tagged_fields

_ERROR = struct.Struct(">h")
_API = struct.Struct(">hhh")
_INT32 = struct.Struct(">i")
_EPOCH = struct.Struct(">q")
_SUPPORTED_TAG, _FINALIZED_EPOCH_TAG, _FINALIZED_TAG = 0, 1, 2
_FINALIZED_EPOCH = 1
_LEVELS = struct.Struct(">hh")
_ZERO_MINIMUM_FROM = 4

FEATURES = {"group.version": 1, "transaction.version": 2, "eligible.leader.replicas.version": 1}
"""Features and their levels; each is supported from level 0 on. Eligible leader replicas: `controller/election.py`."""
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


async def handle(_broker: Broker, request: Request) -> Body:
    """Return the APIs and versions served to clients."""
    version = request.version
    if not serves(ApiKey.API_VERSIONS, version):
        return [_encode(0, ErrorCode.UNSUPPORTED_VERSION)]
    error = ErrorCode.NONE
    if is_flexible(ApiKey.API_VERSIONS, version):
        reader = Reader(request.body)
        name, software_version = reader.string(flexible=True), reader.string(flexible=True)
        reader.tagged_fields()
        if not (_SOFTWARE.fullmatch(name) and _SOFTWARE.fullmatch(software_version)):
            error = ErrorCode.INVALID_REQUEST
    return [_encode(version, error)]


@cache
def _encode(version: int, error: ErrorCode) -> bytes:
    flexible = is_flexible(ApiKey.API_VERSIONS, version)
    # A client with an unsupported version gets the versions of ApiVersions, and retries.
    refused = error is ErrorCode.INVALID_REQUEST
    apis = [] if refused else sorted((APIS[key] for key in APIS if key not in AMONG_BROKERS), key=lambda api: api.key)
    if error is ErrorCode.UNSUPPORTED_VERSION:
        apis = [APIS[ApiKey.API_VERSIONS]]
    out = bytearray(_ERROR.pack(error))
    put_array_length(out, len(apis), flexible)
    for api in apis:
        out += _API.pack(api.key, api.advertised_min_version, api.max_version)
        if flexible:
            out.append(0)
    if version >= 1:
        out += _INT32.pack(0)
    if flexible:
        put_tagged_fields(out, {} if refused else _features(version))
    return bytes(out)


def _features(version: int) -> dict[int, bytes]:
    # Clients before version 4 treat a minimum level of 0 as an error, so Kafka does not send it to them (KAFKA-17011).
    supported = FEATURES if version >= _ZERO_MINIMUM_FROM else {}
    return {
        _SUPPORTED_TAG: _levels((name, 0, level) for name, level in supported.items()),
        _FINALIZED_EPOCH_TAG: _EPOCH.pack(_FINALIZED_EPOCH),
        _FINALIZED_TAG: _levels((name, level, level) for name, level in FEATURES.items()),
    }


def _levels(features: Iterable[tuple[str, int, int]]) -> bytes:
    features = list(features)
    out = bytearray()
    put_array_length(out, len(features), flexible=True)
    for name, first, second in features:
        put_string(out, name, flexible=True)
        out += _LEVELS.pack(first, second)
        put_tagged_fields(out, {})
    return bytes(out)

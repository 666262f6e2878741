"""ApiVersions, versions 0 to 4; an unknown version is answered in version 0 with UNSUPPORTED_VERSION (KIP-511).

Written by hand because it is the first thing that every client asks, and the generated codecs take longer to load
than the broker to start. No feature is advertised as finalized: none is served that would need one.
"""

from __future__ import annotations

import re
import struct
from functools import cache

from broker_lite.handlers.broker import Broker
from broker_lite.handlers.request import Body, Request
from broker_lite.protocol.apis import APIS, ApiKey, is_flexible, serves
from broker_lite.protocol.errors import ErrorCode
from broker_lite.protocol.primitives import Reader, put_array_length, put_tagged_fields

_ERROR = struct.Struct(">h")
_API = struct.Struct(">hhh")
_INT32 = struct.Struct(">i")
_EPOCH = struct.Struct(">q")
_FINALIZED_EPOCH_TAG = 1
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(_broker: Broker, request: Request) -> Body:
    """Say which APIs are served, in which versions."""
    version = request.version
    if not serves(ApiKey.API_VERSIONS, version):
        return [_encode(0, ErrorCode.UNSUPPORTED_VERSION)]
    error = ErrorCode.NONE
    if is_flexible(ApiKey.API_VERSIONS, version):
        reader = Reader(request.body)
        name, software_version = reader.string(flexible=True), reader.string(flexible=True)
        reader.tagged_fields()
        reader.finish()
        if not (_SOFTWARE.fullmatch(name) and _SOFTWARE.fullmatch(software_version)):
            error = ErrorCode.INVALID_REQUEST
    return [_encode(version, error)]


@cache
def _encode(version: int, error: ErrorCode) -> bytes:
    flexible = is_flexible(ApiKey.API_VERSIONS, version)
    # A client that asked for too much learns the versions of ApiVersions itself, and asks again.
    refused = error is ErrorCode.INVALID_REQUEST
    apis = [] if refused else sorted(APIS.values(), key=lambda api: api.key)
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
        put_tagged_fields(out, {_FINALIZED_EPOCH_TAG: _EPOCH.pack(-1)})
    return bytes(out)

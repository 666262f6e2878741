"""DescribeConfigs v1 to v4 (KIP-226, KIP-524, KIP-569). Absent: loggers of brokers, and clients' metrics."""

from __future__ import annotations

from typing import Any

from sparkonce.broker_lite.node.broker import Broker
from sparkonce.broker_lite.node.described_settings import Entry, entries
from sparkonce.broker_lite.node.request import Body, Request
from sparkonce.broker_lite.node.turns import DESCRIBED
from sparkonce.kafka.protocol import apis
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError

TYPES_FROM = 3


async def handle(broker: Broker, request: Request) -> Body:
    """Describe the settings of each resource, all or those named."""
    wanted = request.message()
    results = []
    for each in wanted.resources:
        results.append(_resource(broker, request, wanted, each))
        await broker.turns.spend(request, DESCRIBED)
    return request.response(results=results)


def _resource(broker: Broker, request: Request, wanted: Any, resource: Any) -> Any:
    version, types = request.version, apis.response_class(request.api_key).DescribeConfigsResult
    configs: list[Any] = []
    code, text = ErrorCode.NONE, ""
    try:
        names = set(resource.configuration_keys or ())
        found = entries(broker, request, resource.resource_type, resource.resource_name)
        configs = [_config(types, version, each, wanted) for each in found if not names or each.setting.name in names]
    except KafkaError as error:
        code, text = error.code, error.message
    return types(
        version=version,
        error_code=int(code),
        error_message=text,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=configs,
    )


def _config(types: Any, version: int, entry: Entry, wanted: Any) -> Any:
    setting, result = entry.setting, types.DescribeConfigsResourceResult
    synonyms = [
        result.DescribeConfigsSynonym(version=version, name=each.name, value=each.value, source=int(each.source))
        for each in (entry.synonyms if wanted.include_synonyms else ())
    ]
    more: dict[str, Any] = {}
    if version >= TYPES_FROM:
        documented = wanted.include_documentation and setting.documentation
        more = {"config_type": int(setting.shown_kind), "documentation": setting.documentation if documented else None}
    return result(
        version=version,
        name=setting.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=int(entry.source),
        is_sensitive=setting.sensitive,
        synonyms=synonyms,
        **more,
    )

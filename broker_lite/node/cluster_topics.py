"""Topics that the controller creates because a client names them, or a coordinator needs them.

As Kafka's AutoTopicCreationManager. There is one request at a time for each topic; waiting clients retry, and then
find the topic or not.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from sparkonce.broker_lite.cluster.member import ClusterMember
from sparkonce.broker_lite.controller.image import MIN_IN_SYNC_REPLICAS
from sparkonce.broker_lite.coordinators.internal_topics import INTERNAL_TOPICS, OFFSETS_TOPIC
from sparkonce.broker_lite.node.dynamic_settings import DynamicSettings
from sparkonce.broker_lite.node.forwarding import enclose, enclosed_answer
from sparkonce.broker_lite.node.new_topics import internal_topic_settings
from sparkonce.broker_lite.waiting import begin_in_background
from sparkonce.kafka.protocol import apis
from sparkonce.kafka.protocol.apis import ApiKey
from sparkonce.kafka.protocol.errors import ErrorCode

VERSION: Final = 7
TIMEOUT_MS: Final = 10_000

MAX_REPORTED: Final = 100
"""Topics whose last logged failure is remembered."""

logger = logging.getLogger(__name__)


class WantedTopics:
    """The topics that were requested, without an answer yet."""

    def __init__(self, member: ClusterMember, dynamic: DynamicSettings) -> None:
        self._member = member
        self._dynamic = dynamic
        self._under_way: set[str] = set()
        self._reported: dict[str, str] = {}
        """The failures that have been logged: coordinators and clients retry every second or so."""

    def request(self, name: str) -> None:
        """Request a topic from the controller, unless that is under way."""
        if name in self._under_way:
            return
        self._under_way.add(name)
        begin_in_background(self._create(name), f"topic {name} is not created")

    def _request(self, name: str) -> Any:
        config = self._dynamic.config
        partitions, factor, settings = config.num_partitions, config.default_replication_factor, {}
        if name in INTERNAL_TOPICS:
            partitions, of_topic = internal_topic_settings(config)[name]
            settings = dict(of_topic)
            if name == OFFSETS_TOPIC:
                factor = config.offsets_topic_replication_factor
            else:
                factor = config.transaction_state_log_replication_factor
                settings[MIN_IN_SYNC_REPLICAS] = str(config.transaction_state_log_min_isr)
        kind = apis.request_class(ApiKey.CREATE_TOPICS).CreatableTopic
        configs = [kind.CreatableTopicConfig(version=VERSION, name=key, value=of) for key, of in settings.items()]
        topic = kind(
            version=VERSION,
            name=name,
            num_partitions=partitions,
            replication_factor=factor,
            assignments=[],
            configs=configs,
        )
        return apis.request(ApiKey.CREATE_TOPICS, VERSION, topics=[topic], timeout_ms=TIMEOUT_MS, validate_only=False)

    async def _create(self, name: str) -> None:
        answer = await self._member.ask_controller(enclose(self._request(name)), TIMEOUT_MS)
        self._under_way.discard(name)
        if answer is None or answer.error_code:
            why = "nobody has answered" if answer is None else ErrorCode.of(answer.error_code).name
            self._report(name, f"by the controller: {why}")
            return
        self._member.poll()
        for each in enclosed_answer(ApiKey.CREATE_TOPICS, VERSION, answer).topics:
            if each.error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                self._reported.pop(name, None)
                continue
            code, remedy = ErrorCode.of(each.error_code), ""
            if code is ErrorCode.INVALID_REPLICATION_FACTOR:
                remedy = f"; start more brokers, or set a lower {_factor_setting(name)}"
            self._report(name, f"yet: {code.name} ({each.error_message}){remedy}")

    def _report(self, name: str, why: str) -> None:
        if self._reported.get(name) != why:
            if len(self._reported) >= MAX_REPORTED:
                self._reported.clear()
            self._reported[name] = why
            logger.warning("topic %s is not created %s", name, why)


def _factor_setting(name: str) -> str:
    if name not in INTERNAL_TOPICS:
        return "default.replication.factor"
    return f"{'offsets.topic' if name == OFFSETS_TOPIC else 'transaction.state.log'}.replication.factor"

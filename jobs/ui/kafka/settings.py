"""Settings of topics and brokers, by DescribeConfigs; brokers do not return secret values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from sparkonce.jobs.ui.kafka.answers import Answers
from sparkonce.jobs.ui.kafka.loop import PROBLEMS
from sparkonce.kafka.client.client import Client
from sparkonce.kafka.client.settings import ClientSettings
from sparkonce.kafka.protocol import apis
from sparkonce.kafka.protocol.apis import ApiKey
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError

KEPT_S = 5.0
"""How long a response is cached."""


class Resource(IntEnum):
    """The type of a resource with settings (`ConfigResource.Type`)."""

    TOPIC = 2
    BROKER = 4


SOURCES = {
    1: "the topic",
    2: "this broker, at run time",
    3: "all brokers, at run time",
    4: "this broker's file",
    5: "default",
}
"""`DescribeConfigsResponse.ConfigSource`."""
DEFAULT = 5


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting."""

    name: str
    value: str | None
    source: str
    is_default: bool
    is_secret: bool


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of a topic or broker, or why they are unknown."""

    all: Sequence[Setting] = ()
    problem: str | None = None

    @property
    def given(self) -> list[Setting]:
        """Those set explicitly."""
        return [each for each in self.all if not each.is_default]

    @property
    def defaults(self) -> list[Setting]:
        """The others."""
        return [each for each in self.all if each.is_default]


class SettingsReader:
    """Requests settings; any thread may call it."""

    def __init__(self, settings: ClientSettings) -> None:
        self._answers: Answers[Client, list[Setting]] = Answers(Client(settings), PROBLEMS, KEPT_S)

    def of_topic(self, name: str) -> Settings:
        """Return the settings of a topic."""
        return self._of(Resource.TOPIC, name, None)

    def of_broker(self, broker_id: int, host: str, port: int) -> Settings:
        """Return the settings of a broker; only the broker itself has them."""
        return self._of(Resource.BROKER, str(broker_id), (host, port))

    def close(self) -> None:
        """Close all connections."""
        self._answers.close()

    def _of(self, resource: Resource, name: str, address: tuple[str, int] | None) -> Settings:
        def ask(client: Client) -> list[Setting]:
            return client.retry("ask for settings", lambda: _settings(client, resource, name, address))

        found, problem = self._answers.get((resource, name), ask)
        return Settings(found or (), str(problem) if problem else None)


def _settings(client: Client, resource: Resource, name: str, address: tuple[str, int] | None) -> list[Setting]:
    connection = client.any_connection() if address is None else client.connection(address)
    version = connection.version(ApiKey.DESCRIBE_CONFIGS)
    kind = apis.request_class(ApiKey.DESCRIBE_CONFIGS).DescribeConfigsResource
    wanted = kind(version=version, resource_type=int(resource), resource_name=name, configuration_keys=None)
    answer = client.ask(connection, ApiKey.DESCRIBE_CONFIGS, version, resources=[wanted])
    (result,) = answer.results
    if result.error_code:
        raise KafkaError(ErrorCode.of(result.error_code), f"settings of {name}")
    return [
        Setting(
            each.name,
            None if each.is_sensitive else each.value,
            SOURCES.get(each.config_source, "elsewhere"),
            each.config_source == DEFAULT,
            bool(each.is_sensitive),
        )
        for each in sorted(result.configs, key=lambda each: str(each.name))
    ]

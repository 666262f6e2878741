"""A real Kafka in a container for tests: start, kill, restart, and gone at the end.

    with start_container() as kafka:
        kafka.bootstrap_servers

The stock ``KafkaContainer`` of testcontainers runs, on the image that ``KAFKA_IMAGE`` names or on the local one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from confluent_kafka.admin import AdminClient

from lab.network import free_port
from tests.containers.engine import prepare_environment
from tests.containers.kafka_image import image

_START_TIMEOUT_S = 120
_PORT_INSIDE = 9093
# One node: what Kafka wants three of by default has to be one.
_ENVIRONMENT = {
    "KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
    "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR": "1",
    "KAFKA_SHARE_COORDINATOR_STATE_TOPIC_REPLICATION_FACTOR": "1",
    "KAFKA_SHARE_COORDINATOR_STATE_TOPIC_MIN_ISR": "1",
}


class StartFailedError(Exception):
    """Kafka's container ended, or was not ready in time; the message holds the end of its log."""


@dataclass(frozen=True, slots=True)
class ContainerKafka:
    """A Kafka that runs in a container, on a port that stays the same over a restart."""

    bootstrap_servers: str
    _container: Any

    def kill(self) -> None:
        """End Kafka with SIGKILL; its files stay."""
        self._container.get_wrapped_container().kill()

    def restart(self) -> None:
        """Start Kafka again on its files and its port, after `kill`; returns when it is ready."""
        self._container.get_wrapped_container().start()
        # The client asks again until the deadline, and Kafka opens its port when it is ready.
        AdminClient({"bootstrap.servers": self.bootstrap_servers}).list_topics(timeout=_START_TIMEOUT_S)

    def log(self) -> str:
        """Return what Kafka has logged so far, over all its starts."""
        return "".join(part.decode(errors="replace") for part in self._container.get_logs())


@contextmanager
def start_container(**environment: str) -> Iterator[ContainerKafka]:
    """Run Kafka for the length of a ``with``; ``environment`` adds settings in the image's ``KAFKA_*`` form.

    Raises:
        EngineMissingError: where no Docker engine answers.
        StartFailedError: where Kafka does not come up.
        ImageError, PeerMissingError: where the local image has to be built and cannot be.
    """
    prepare_environment()
    chosen = image()
    from testcontainers.community.kafka import KafkaContainer

    container = KafkaContainer(image=chosen, port=_PORT_INSIDE).with_kraft()
    port = free_port()
    container.with_bind_ports(_PORT_INSIDE, port)
    for name, value in {**_ENVIRONMENT, **environment}.items():
        container.with_env(name, value)
    try:
        kafka = ContainerKafka(f"{container.get_container_host_ip()}:{port}", container)
        try:
            container.start(timeout=_START_TIMEOUT_S)
        except (RuntimeError, TimeoutError) as error:
            raise StartFailedError(
                f"Kafka ({chosen}) did not start; its log ends with:\n{kafka.log()[-3000:]}"
            ) from error
        yield kafka
    finally:
        container.stop()
        container.get_docker_client().client.close()

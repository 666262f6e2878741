"""A pytest plugin: `kafka_broker`, a broker for each test, and `kafka_cluster`, several; see docs/testing.md.

`KAFKA` in the environment chooses the broker: `embedded` (the default), in this process, new and empty for
each test; `container`, Apache Kafka in a container, one for all tests; or `host:port`, a running broker.
Clusters are always embedded.
The plugin imports nothing of the broker at load: the first test that uses it does.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from sparkonce.broker_lite.embedded import EmbeddedBroker
    from sparkonce.broker_lite.embedded_cluster import EmbeddedCluster

EMBEDDED = "embedded"
CONTAINER = "container"
MARKER = "kafka_broker"
CLUSTER_MARKER = "kafka_cluster"
DEFAULT_IMAGE = "confluentinc/cp-kafka:8.1.0"


class ForeignBroker:
    """An external broker, which must not be killed: only its address is known."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers = bootstrap_servers

    def __getattr__(self, name: str) -> Any:
        raise pytest.skip.Exception(f"kafka_broker.{name} needs KAFKA={EMBEDDED}, the default")


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker."""
    config.addinivalue_line(
        "markers",
        f"{MARKER}(process=False, config={{}}): how the embedded broker of the fixture of this name is made",
    )
    config.addinivalue_line(
        "markers",
        f"{CLUSTER_MARKER}(brokers=3, process=False, config={{}}): how the cluster of the fixture of this name is made",
    )


@pytest.fixture
def kafka_broker(request: pytest.FixtureRequest) -> Iterator[EmbeddedBroker | ForeignBroker]:
    """Yield a broker with `.bootstrap_servers`; an embedded one is new for each test and has no topics.

    The marker `kafka_broker` passes arguments on to `EmbeddedBroker`; of several, such as on a class and a method,
    the nearest one wins per argument. If `KAFKA` selects another broker, a test that uses more than its address, or
    needs settings, is skipped.
    """
    kind = os.environ.get("KAFKA", EMBEDDED)
    arguments = _arguments(request.node, MARKER)
    if kind == EMBEDDED:
        from sparkonce.broker_lite.embedded import EmbeddedBroker

        with EmbeddedBroker(**arguments) as broker:
            yield broker
    elif arguments:
        pytest.skip(f"a broker made with {arguments} needs KAFKA={EMBEDDED}, the default")
    elif kind == CONTAINER:
        yield request.getfixturevalue("_kafka_container")
    elif ":" in kind:
        yield ForeignBroker(kind)
    else:
        raise pytest.UsageError(f"KAFKA={kind!r}: expected {EMBEDDED}, {CONTAINER} or host:port")


@pytest.fixture
def kafka_cluster(request: pytest.FixtureRequest) -> Iterator[EmbeddedCluster]:
    """Yield a cluster with `.bootstrap_servers`, new for each test and without topics.

    The marker `kafka_cluster` passes arguments on to `EmbeddedCluster`, as that of `kafka_broker` does. If `KAFKA`
    selects another broker than an embedded one, the test is skipped.
    """
    kind = os.environ.get("KAFKA", EMBEDDED)
    if kind != EMBEDDED:
        pytest.skip(f"kafka_cluster needs KAFKA={EMBEDDED}, the default")
    from sparkonce.broker_lite.embedded_cluster import EmbeddedCluster

    with EmbeddedCluster(**_arguments(request.node, CLUSTER_MARKER)) as cluster:
        yield cluster


def _arguments(node: pytest.Item, name: str) -> dict[str, Any]:
    """Merge the arguments of the test's markers, the nearest one last."""
    arguments: dict[str, Any] = {}
    config: dict[str, object] = {}
    for marker in reversed(list(node.iter_markers(name))):
        if marker.args:
            given = ", ".join(map(repr, marker.args))
            raise pytest.UsageError(
                f"@pytest.mark.{name}({given}): give arguments by name, as in "
                f'@pytest.mark.{name}(config={{"num.partitions": 4}})'
            )
        arguments.update(marker.kwargs)
        config.update(marker.kwargs.get("config") or {})
    return arguments | {"config": config} if config else arguments


@pytest.fixture(scope="session")
def _kafka_container() -> Iterator[ForeignBroker]:
    try:
        from testcontainers.community.kafka import KafkaContainer
    except ImportError as error:
        raise pytest.UsageError("KAFKA=container needs testcontainers: pip install testcontainers") from error
    with KafkaContainer(image=os.environ.get("KAFKA_IMAGE", DEFAULT_IMAGE)).with_kraft() as container:
        yield ForeignBroker(container.get_bootstrap_server())

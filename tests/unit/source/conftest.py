"""A schema registry for the tests of values, one for each module."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient

from sparkonce import EmbeddedBroker, EmbeddedRegistry
from sparkonce.connectors.schema_registry.client import close_registries


@pytest.fixture(scope="module")
def registry() -> Iterator[EmbeddedRegistry]:
    with EmbeddedBroker() as broker, EmbeddedRegistry(broker.bootstrap_servers) as made:
        yield made
    close_registries()


@pytest.fixture(scope="module")
def client(registry: EmbeddedRegistry) -> Iterator[SchemaRegistryClient]:
    with closing(SchemaRegistryClient({"url": registry.url})) as made:
        yield made

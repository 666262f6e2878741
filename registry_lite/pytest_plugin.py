"""A pytest plugin: `schema_registry`, a registry for each test beside the fixture `kafka_broker`; see docs/testing.md.

The plugin imports nothing of the registry at load: the first test that uses it does.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from sparkonce.registry_lite.embedded import EmbeddedRegistry

MARKER = "schema_registry"


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker."""
    config.addinivalue_line(
        "markers", f"{MARKER}(user_info=None, …): how the registry of the fixture of this name is made"
    )


@pytest.fixture
def schema_registry(request: pytest.FixtureRequest, kafka_broker: Any) -> Iterator[EmbeddedRegistry]:
    """Yield a registry with `.url`, new for each test, whose topic is on the broker of `kafka_broker`.

    The marker `schema_registry` passes arguments on to `EmbeddedRegistry`; of several, the nearest one's are used.
    """
    import sparkonce

    arguments: dict[str, Any] = {"topic": f"_schemas_{uuid.uuid4().hex[:8]}"}
    for marker in reversed(list(request.node.iter_markers(MARKER))):
        if marker.args:
            raise pytest.UsageError(f"@pytest.mark.{MARKER}: give arguments by name")
        arguments.update(marker.kwargs)
    with sparkonce.EmbeddedRegistry(kafka_broker.bootstrap_servers, **arguments) as registry:
        yield registry

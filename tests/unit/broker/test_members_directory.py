"""A broker by itself keeps out of the data of a cluster's member."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker_lite import EmbeddedBroker
from broker_lite.embedded import BrokerStartError


def test_the_data_of_a_clusters_member_is_refused(tmp_path: Path) -> None:
    """It would take writes at offsets where the other replicas have other records."""
    with EmbeddedBroker(tmp_path / "data", config={"metadata.log.dir": str(tmp_path / "shared"), "node.id": 1}):
        pass
    with pytest.raises(BrokerStartError, match=r"member of a cluster: give metadata\.log\.dir"):
        EmbeddedBroker(tmp_path / "data", config={"node.id": 1})
    with EmbeddedBroker(tmp_path / "data", config={"metadata.log.dir": str(tmp_path / "shared"), "node.id": 1}):
        pass

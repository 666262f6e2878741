"""Cluster images as brokers of different versions know them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkonce.broker_lite.cluster.record_format import decode, encode_snapshot
from sparkonce.broker_lite.controller.image import ClusterImage

if TYPE_CHECKING:
    from lab.sim.machine.process import Process


def as_known(image: ClusterImage, version: type[Process]) -> ClusterImage:
    """Return an image as a version knows it: without what is new since then."""
    return decoded(version.known(encode_snapshot(image)), image.next_offset)


def decoded(image: bytes, next_offset: int) -> ClusterImage:
    """Decode an image that any version has encoded."""
    found = decode(image)
    assert isinstance(found, ClusterImage)
    found.next_offset = next_offset
    return found

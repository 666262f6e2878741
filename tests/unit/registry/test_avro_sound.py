"""Whatever the registry calls compatible, Java and fastavro read: a sample of random pairs of schemas.

The large form is in tests/lab/registry.
"""

from __future__ import annotations

import json
from typing import Any

from fastavro.schema import to_parsing_canonical_form as canonical

from sparkonce.registry_lite.compatibility import avro
from tests.avro_pairs import Pair, losses, pairs


def problems(pair: Pair) -> list[str]:
    """Return why a pair is refused."""
    writer, reader = json.dumps(pair.writer), json.dumps(pair.reader)
    for each in (writer, reader):
        try:
            avro.check(each, ())
        except ValueError as error:
            return [str(error)]
        assert not avro.incompatible((each, ()), (each, ())), f"not compatible with itself: {each}"
        assert canonical(json.loads(avro.normal(each, ()))) == canonical(json.loads(each))
    return avro.incompatible((reader, ()), (writer, ()))


def compare(some: list[Pair]) -> dict[str, Any]:
    """Return how many pairs are compatible, and how many are refused of which something cannot be read."""
    counts = {"pairs": len(some), "compatible": 0, "rightly_refused": 0}
    for pair, lost in zip(some, losses(some), strict=True):
        if problems(pair):
            counts["rightly_refused"] += bool(lost)
        else:
            counts["compatible"] += 1
            assert not lost, f"{lost}: {pair}"
    return counts


def test_what_is_compatible_is_read() -> None:
    counts = compare([*pairs(1, 400)])
    assert counts["compatible"] > 150, counts
    assert counts["rightly_refused"] > 80, counts

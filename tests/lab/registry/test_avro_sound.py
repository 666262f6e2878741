"""Whatever the registry calls compatible, Java and fastavro read: thousands of random pairs of schemas."""

from __future__ import annotations

from itertools import islice

from tests.avro_pairs import pairs
from tests.chance import examples
from tests.unit.registry.test_avro_sound import compare

PAIRS = 12_000
TOGETHER = 2_000
"""Read by one process of Java."""


def test_what_is_compatible_is_read() -> None:
    some, compatible = pairs(100_000, examples(PAIRS)), 0
    while together := [*islice(some, TOGETHER)]:
        compatible += compare(together)["compatible"]
    print(f"RESULT pairs={examples(PAIRS)} compatible={compatible} unsound=0")
    assert compatible > PAIRS // 3

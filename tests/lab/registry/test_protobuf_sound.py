"""Whatever the registry calls compatible, Google's parser reads without loss: thousands of random pairs of schemas."""

from __future__ import annotations

from sparkonce.registry_lite.compatibility.protobuf import differences
from tests.chance import examples
from tests.protobuf_pairs import losses, pairs

PAIRS = 15_000


def test_what_is_compatible_is_read_without_loss() -> None:
    compatible = 0
    for pair in pairs(100_000, examples(PAIRS)):
        if not differences(pair.reader, pair.writer):
            compatible += 1
            assert not [*losses(pair)], pair
    print(f"RESULT pairs={examples(PAIRS)} compatible={compatible} unsound=0")
    assert compatible > PAIRS // 3

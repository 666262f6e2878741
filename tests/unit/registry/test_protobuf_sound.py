"""Whatever the registry calls compatible, Google's parser reads without loss: a sample of random pairs of schemas.

The large form is in tests/lab/registry.
"""

from __future__ import annotations

from sparkonce.registry_lite.compatibility.protobuf import differences
from tests.protobuf_pairs import losses, pairs


def test_what_is_compatible_is_read_without_loss() -> None:
    compatible, rightly_refused = 0, 0
    for pair in pairs(1, 500):
        assert not differences(pair.reader, pair.reader), f"not compatible with itself: {pair}"
        lost = [*losses(pair)]
        if differences(pair.reader, pair.writer):
            rightly_refused += bool(lost)
        else:
            compatible += 1
            assert not lost, f"{lost}: {pair}"
    assert compatible > 200, "the sample hardly has compatible pairs"
    assert rightly_refused > 80, "the sample hardly has pairs of which something is lost"

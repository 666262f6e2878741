"""Objects kept over batches: made once for a key, and let go of in the order of their last use."""

from __future__ import annotations

from sparkonce.connectors.runtime.cache import MAX_KEPT, LruCache


def test_the_one_used_longest_ago_goes_first() -> None:
    kept: LruCache[int, int] = LruCache()
    made: list[int] = []

    def get(key: int) -> None:
        def make() -> int:
            made.append(key)
            return -key

        assert kept.get(key, make) == -key

    for key in [*range(MAX_KEPT), 0, MAX_KEPT, 0, 1]:
        get(key)
    assert made == [*range(MAX_KEPT + 1), 1]

"""Results of pages that are kept."""

from __future__ import annotations

from sparkonce.jobs.ui.result_cache import ResultCache


def test_as_many_results_are_kept_as_have_room() -> None:
    cache, made = ResultCache(3, 10), list[str]()

    def get(key: str) -> str:
        return cache.get(key, lambda: made.append(key) or key, len)

    for key in ("a", "b", "cccccc", "b", "dddd"):
        assert get(key) == key
    assert made == ["a", "b", "cccccc", "dddd"]
    assert get("eeeeeeeeeeeee"), "what has no room is made each time"
    made.clear()
    assert [get(key) for key in ("b", "a")] == ["b", "a"]
    assert made == ["b", "a"]

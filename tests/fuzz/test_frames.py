"""Mutated frames of every API: the broker answers them or refuses them, and nothing else happens."""

from __future__ import annotations

import tracemalloc

import pytest

from broker_lite.protocol.apis import APIS
from tests.fuzz.harness import Target, fuzz

SEEDS = range(1, 5)
FRAMES = 2_500
SOAK_ROUNDS = 40
SOAK_FRAMES = 25_000
MAX_GROWTH_BYTES = 8 << 20


def test_the_corpus_is_served() -> None:
    target = Target(0)
    for frame in target.frames:
        target.feed(frame)
    assert target.refused == 0
    assert len(target.frames) == sum(api.max_version - api.min_version + 1 for api in APIS.values())


@pytest.mark.parametrize("seed", SEEDS)
def test_mutated_frames(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    target = fuzz(seed, FRAMES, monkeypatch)
    assert min(target.answered, target.refused) > FRAMES // 10, "the mutations are too tame or too wild"


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_million_mutated_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each round is a broker of its own; what the process holds after one is what it held before."""
    fuzz(1000, SOAK_FRAMES, monkeypatch)  # fills caches
    tracemalloc.start()
    try:
        held = 0
        for number in range(1, SOAK_ROUNDS + 1):
            fuzz(1000 + number, SOAK_FRAMES, monkeypatch)
            now = tracemalloc.get_traced_memory()[0]
            held = held or now
            assert now - held < MAX_GROWTH_BYTES, f"grown by {now - held} bytes after {number} rounds"
    finally:
        tracemalloc.stop()

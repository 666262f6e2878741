"""Mutated frames of every API: the broker answers them or refuses them, and nothing else happens."""

from __future__ import annotations

import logging
import sys

import pytest

from tests.fuzz.corpus import CLIENTS_APIS
from tests.fuzz.harness import Target, fuzz

SEEDS = range(1, 5)
FRAMES = 2_500
SOAK_ROUNDS = 40
SOAK_FRAMES = 25_000
MAX_GROWTH_BLOCKS = 20_000
"""Pieces of memory that Python has given out; one leaked for each frame would be 25,000 in a round."""


def test_the_corpus_is_served() -> None:
    target = Target(0)
    for frame in target.frames:
        target.feed(frame)
    assert target.refused == 0
    assert len(target.frames) == sum(api.max_version - api.min_version + 1 for api in CLIENTS_APIS)


@pytest.mark.parametrize("seed", SEEDS)
def test_mutated_frames(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    target = fuzz(seed, FRAMES, monkeypatch)
    assert min(target.answered, target.refused) > FRAMES // 10, "the mutations are too tame or too wild"


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_a_million_mutated_frames(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Each round is a broker of its own; what the process holds after one is what it held before."""
    logging.disable(logging.WARNING)  # pytest would keep every line
    request.addfinalizer(lambda: logging.disable(logging.NOTSET))
    fuzz(1000, SOAK_FRAMES, monkeypatch)  # fills caches
    held = sys.getallocatedblocks()
    assert held > 0, "PYTHONMALLOC=malloc keeps Python from counting them"
    for number in range(1, SOAK_ROUNDS + 1):
        fuzz(1000 + number, SOAK_FRAMES, monkeypatch)
        grown = sys.getallocatedblocks() - held
        assert grown < MAX_GROWTH_BLOCKS, f"{grown} more blocks of memory are held after {number} rounds"

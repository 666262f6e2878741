"""The large form of the random pairs of JSON Schemas: at least 20,000, and what was found in them."""

from __future__ import annotations

import pytest

from tests.chance import examples
from tests.json_schemas import judge

PAIRS = 24_000


@pytest.mark.timeout(1200)
def test_no_document_of_before_is_rejected_by_what_counts_as_compatible() -> None:
    judged = [judge(seed, documents=40) for seed in range(10_000, 10_000 + examples(PAIRS))]
    wrong = [each for _, found in judged for each in found]
    compatible = sum(taken for taken, _ in judged)
    print(f"RESULT pairs={len(judged)} compatible={compatible} wrong={len(wrong)}")
    assert wrong == []
    assert compatible > len(judged) // 3, "it would be right to refuse all, and no use"

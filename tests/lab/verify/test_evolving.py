"""The records of evolving schemas: each field that a value has must be in its row."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pytest

from lab.verify import evolving
from lab.verify.records import is_rejected, make_evolving

NUMBERS = range(20)


def rows(number: int) -> list[dict[str, Any]]:
    """Return what a record's row may be: as Apache's rules read it, by each version that can read it, and no older."""
    value = evolving.value(number)
    writer = json.loads(evolving.schema(evolving.version_of(number)))
    readers = [json.loads(evolving.schema(version)) for version in range(evolving.version_of(number), 5)]
    return [dict(fastavro.schemaless_reader(io.BytesIO(value[5:]), writer, reader)) for reader in readers]  # type: ignore[arg-type]


def test_each_version_is_written_by_some_record_that_is_not_rejected() -> None:
    sent = [value for _, _, value in make_evolving(NUMBERS, ambiguous=True) if not is_rejected(value)]
    assert {value[4] for value in sent} == {1, 2, 3, 4, 5}
    assert [evolving.is_ambiguous(value) for value in sent].count(True) == 1


@pytest.mark.parametrize("number", NUMBERS)
def test_a_row_is_the_value_it_was_read_from(number: int) -> None:
    for row in rows(number):
        assert evolving.value_of_row(row) == evolving.value(number)


@pytest.mark.parametrize("number", NUMBERS)
def test_a_row_without_a_field_of_its_value_is_none(number: int) -> None:
    row = rows(number)[0]
    for name in row.keys() - {evolving.NUMBER}:
        for wrong in (None, 0.5, "none"):
            if number != evolving.AMBIGUOUS or name != evolving.NOTE:
                assert evolving.value_of_row({**row, name: wrong}) != evolving.value(number)


def test_the_ambiguous_value_is_read_by_versions_with_a_default_only() -> None:
    value = evolving.value(evolving.AMBIGUOUS, ambiguous=True)
    row = {evolving.NUMBER: evolving.AMBIGUOUS, evolving.NOTE: evolving.NO_DEFAULT}
    assert evolving.value_of_row(row) == value
    assert evolving.value_of_row({**row, evolving.NOTE: None}) != value

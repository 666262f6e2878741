"""The rows of a source with handOver=ranges: what is written is read, and nothing else is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import StringType, StructField, StructType

from sparkonce.connectors.direct.source import find_source, reject_ranges
from sparkonce.connectors.kafka_source.hand_over import COLUMN, METADATA, HandOver, HandOverError, with_lost
from sparkonce.connectors.kafka_source.planning import split
from sparkonce.connectors.kafka_source.ranges import FetchRange
from sparkonce.kafka.client.metadata import Leader
from sparkonce.kafka.client.settings import READER
from sparkonce.offset_store.offsets import OffsetRange, TopicPartition
from sparkonce.options import OptionError
from tests.cases import each_case

GIVEN = {"kafka.bootstrap.servers": "broker:9092", "subscribe": "t", "handOver": "ranges"}
SOURCE = HandOver.of(GIVEN)
RANGE = FetchRange("t", "id", 0, 3, 8, Leader("broker", 9092, 4), 4)

texts = st.text(st.characters(codec="utf-8"), max_size=20)
leaders = st.none() | st.builds(Leader, texts, st.integers(0, 65_535), st.integers(-1, 2**31 - 1))


@st.composite
def fetch_ranges(draw: st.DrawFn) -> FetchRange:
    start = draw(st.integers(0, 2**63 - 2))
    end = draw(st.integers(start + 1, 2**63 - 1))
    epoch = draw(st.none() | st.integers(0, 2**31 - 1))
    partition = draw(st.integers(0, 2**31 - 1))
    return FetchRange(draw(texts), draw(texts), partition, start, end, draw(leaders), epoch, draw(st.booleans()))


def row(**changes: Any) -> str:
    """Return the row of `RANGE` with other fields."""
    document = json.loads(SOURCE.rows([RANGE]).column(0)[0].as_py())
    return json.dumps({**document, **changes})


def read(*rows: str | None) -> list[FetchRange]:
    return SOURCE.ranges([pa.record_batch([pa.array(rows, pa.string())], names=[COLUMN])])


@given(st.lists(fetch_ranges(), max_size=5), st.integers(1, 3))
def test_ranges_come_back_in_order(ranges: list[FetchRange], per_batch: int) -> None:
    batches = [SOURCE.rows(ranges[at : at + per_batch]) for at in range(0, len(ranges), per_batch)]
    assert SOURCE.ranges(batches) == ranges


@given(st.dictionaries(texts, texts, max_size=5))
def test_options_come_back_with_the_schema(given_options: dict[str, str]) -> None:
    hand_over = HandOver.of({**GIVEN, **given_options})
    schema = StructType.fromJson(json.loads(hand_over.schema().json()))
    found = HandOver.find(schema[COLUMN])
    assert found == hand_over
    assert found is not None
    assert found.fingerprint == hand_over.fingerprint


HOSTILE: Mapping[str, str | None] = {
    "null": None,
    "empty": "",
    "no_json": "{",
    "a_number": "7",
    "a_list": "[]",
    "deep": "[" * 100_000,
    "a_foreign_object": json.dumps({"topic": "t"}),
    "no_fingerprint": json.dumps({"topic": "t", "start": 0, "end": 1}),
    "one_field_more": row(more=1),
    "offset_as_text": row(start="3"),
    "offset_as_fraction": row(end=8.5),
    "offset_as_flag": row(start=True),
    "offset_infinite": row(end=float("inf")),
    "negative_offset": row(start=-1),
    "earliest": row(start=-2),
    "backwards": row(start=8, end=3),
    "nothing": row(start=8, end=8),
    "past_64_bits": row(end=2**63),
    "negative_partition": row(partition=-1),
    "topic_as_number": row(topic=1),
    "topic_id_null": row(topic_id=None),
    "lost_as_text": row(lost="false"),
    "leader_as_text": row(leader="broker:9092"),
    "leader_cut_short": row(leader=["broker", 9092]),
    "leader_swapped": row(leader=[9092, "broker", 4]),
    "epoch_as_text": row(epoch="4"),
}


@each_case("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_row_that_no_source_wrote_is_refused(text: str | None) -> None:
    with pytest.raises(HandOverError, match="a row is not a range of a source with handOver=ranges"):
        read(row(), text)


def test_a_long_row_is_cut_in_the_message() -> None:
    with pytest.raises(HandOverError) as refused:
        read("x" * 1_000_000)
    assert len(str(refused.value)) < 1_000


def test_rows_of_another_source_are_refused() -> None:
    other = HandOver.of({**GIVEN, "subscribe": "u"})
    with pytest.raises(HandOverError, match="a range of another source"):
        other.ranges([SOURCE.rows([RANGE])])


@each_case(
    "metadata",
    ["", "{", "[]", "7", '{"options":{}}', '{"options":[1],"secrets":[]}', '{"options":{"a":1},"secrets":[]}'],
)
def test_metadata_that_no_source_wrote_is_refused(metadata: str) -> None:
    field = StructField(COLUMN, StringType(), metadata={METADATA: metadata})
    with pytest.raises(HandOverError, match="metadata"):
        HandOver.find(field)


def test_no_secret_is_in_the_schema_or_in_a_row() -> None:
    """Whatever the spelling of an option's name; the schema says which secrets there are."""
    secrets = [f"kafka.{name}" for name, setting in READER.settings.items() if setting.sensitive]
    assert "kafka.sasl.jaas.config" in secrets
    planted = {name.upper() if at % 2 else name: "s3cr3t" for at, name in enumerate(secrets)}
    planted |= {"storage.AWS_SECRET_ACCESS_KEY": "s3cr3t", "offsetStore": "delta:/s3cr3t"}
    hand_over = HandOver.of({**GIVEN, **planted})
    assert hand_over.secrets == tuple(sorted(name.lower() for name in secrets))
    assert "s3cr3t" not in hand_over.schema().json()
    assert "s3cr3t" not in str(hand_over.rows([RANGE]).to_pylist())
    with pytest.raises(OptionError, match=r"set source\.kafka\.") as refused:
        find_source("delta_once", hand_over.schema(), {})
    assert "s3cr3t" not in str(refused.value)


@st.composite
def batches_with_loss(draw: st.DrawFn) -> tuple[list[FetchRange], list[FetchRange]]:
    """Return the ranges of a batch, and what tasks are to read of them: parts of each range's beginning."""
    sizes = draw(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 30)), min_size=1, max_size=5))
    whole = [FetchRange("t", "id", at, start, start + size) for at, (start, size) in enumerate(sizes)]
    ends = {each: draw(st.integers(each.start, each.end)) for each in whole}
    kept = {TopicPartition("t", "id", each.partition): OffsetRange(each.start, end) for each, end in ends.items()}
    least, most = draw(st.none() | st.integers(1, 12)), draw(st.none() | st.integers(1, 7))
    pieces = [FetchRange(tp.topic, tp.topic_id, tp.partition, at.start, at.end) for tp, at in split(kept, least, most)]
    return whole, draw(st.permutations(pieces))


@given(batches_with_loss())
def test_what_is_lost_and_what_is_kept_tile_the_batch(batch: tuple[list[FetchRange], list[FetchRange]]) -> None:
    whole, kept = batch
    lost = with_lost(kept, whole)
    assert all(each.lost and each.end > each.start for each in lost)
    for each in whole:
        offsets = [
            n for part in [*kept, *lost] if part.partition == each.partition for n in range(part.start, part.end)
        ]
        assert sorted(offsets) == list(range(each.start, each.end))


def test_a_topic_that_was_created_again_does_not_count_as_the_old_one() -> None:
    lost = with_lost([replace(RANGE, topic_id="new")], [replace(RANGE, topic_id="new"), RANGE])
    assert lost == [replace(RANGE, lost=True)]


def test_a_batch_writes_no_ranges() -> None:
    with pytest.raises(OptionError, match=r"kafka_once: the source has handOver=ranges.*foreachBatch"):
        reject_ranges("kafka_once", SOURCE.schema())
    reject_ranges("kafka_once", StructType([StructField("value", StringType())]))

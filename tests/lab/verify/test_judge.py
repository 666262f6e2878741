"""The judge counts what is lost, doubled or made up."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from lab.verify.cells import Shows
from lab.verify.judge import Row, judge, judge_copies, judge_dead_letters, read_rows
from lab.verify.records import Delivered, TopicRecord, document, is_rejected, make, make_documents

TOPIC = [TopicRecord(number % 2, number // 2, b"k%d" % number, b"v%d" % number) for number in range(6)]
BATCH = 3
SENT = [(record.key, record.value) for record in TOPIC]


def rows(*records: TopicRecord) -> list[Row]:
    return [Row(record, 1) for record in records]


def test_each_record_once_is_neither() -> None:
    verdict = judge(SENT, TOPIC, rows(*TOPIC))
    assert (verdict.records, verdict.lost, verdict.duplicated, verdict.strange) == (6, 0, 0, ())
    assert verdict.contradicts(Shows.NEITHER, BATCH) is None
    assert verdict.contradicts(Shows.LOSS, BATCH) is not None
    assert verdict.contradicts(Shows.DUPLICATES, BATCH) is not None


def test_a_loss_is_a_loss_only_without_duplicates() -> None:
    assert judge(SENT, TOPIC, rows(*TOPIC[2:])).lost == 2
    assert judge(SENT, TOPIC, rows(*TOPIC[2:])).contradicts(Shows.LOSS, BATCH) is None
    assert judge(SENT, TOPIC, rows(*TOPIC[2:])).contradicts(Shows.NEITHER, BATCH) is not None
    assert judge(SENT, TOPIC, rows(*TOPIC[2:], TOPIC[2])).contradicts(Shows.LOSS, BATCH) is not None


def test_duplicates_are_counted_in_rows_and_in_counts() -> None:
    for found in (rows(*TOPIC, TOPIC[0], TOPIC[1]), [Row(TOPIC[0], 2), Row(TOPIC[1], 2), *rows(*TOPIC[2:])]):
        verdict = judge(SENT, TOPIC, found)
        assert (verdict.lost, verdict.duplicated) == (0, 2)
        assert verdict.contradicts(Shows.DUPLICATES, BATCH) is None
        assert verdict.contradicts(Shows.NEITHER, BATCH) is not None
    assert judge(SENT, TOPIC, rows(*TOPIC[1:], TOPIC[1])).contradicts(Shows.DUPLICATES, BATCH) is not None


def test_what_may_be_seen_is_bounded_and_of_one_kind() -> None:
    less, more = rows(*TOPIC[2:]), rows(*TOPIC, TOPIC[0])
    for found, may in ((rows(*TOPIC), True), (less, True), (rows(*TOPIC[4:]), False), (more, False)):
        assert (judge(SENT, TOPIC, found).contradicts(Shows.MAYBE_LOSS, BATCH) is None) is may
    for found, may in ((rows(*TOPIC), True), (more, True), (rows(*TOPIC, *TOPIC[:4]), False), (less, False)):
        assert (judge(SENT, TOPIC, found).contradicts(Shows.MAYBE_DUPLICATES, BATCH) is None) is may


def test_how_often_a_record_may_come_is_bounded() -> None:
    verdict = judge(SENT, TOPIC, rows(*TOPIC, *TOPIC[:3], *TOPIC[:3]))
    assert (verdict.duplicated, verdict.most_times) == (6, 3)
    for shows in (Shows.DUPLICATES, Shows.MAYBE_DUPLICATES):
        assert verdict.contradicts(shows, BATCH, 3) is None
        assert "none more than 2 times" in (verdict.contradicts(shows, BATCH) or "")
        assert verdict.contradicts(shows, BATCH - 1, 3) is not None


def test_a_row_that_is_no_record_is_wrong_whatever_must_be_shown() -> None:
    elsewhere = TopicRecord(1, 99, b"k0", b"v0")
    changed = TopicRecord(TOPIC[0].partition, TOPIC[0].offset, b"k0", b"something else")
    for strange in (elsewhere, changed):
        verdict = judge(SENT, TOPIC, rows(*TOPIC[1:], strange))
        assert "rows that are not records of the topic" in (verdict.contradicts(Shows.NEITHER, BATCH) or "")
        assert "rows that are not records of the topic" in (verdict.contradicts(Shows.LOSS, BATCH) or "")


def test_the_broker_is_judged_too() -> None:
    twice = [*TOPIC, TopicRecord(0, 3, *SENT[0])]
    assert "in the topic twice" in (judge(SENT, twice, rows(*TOPIC)).contradicts(Shows.NEITHER, BATCH) or "")
    assert judge(SENT, twice, rows(*twice)).duplicated == 1
    assert "not in the topic" in (judge(SENT, TOPIC[1:], rows(*TOPIC[1:])).contradicts(Shows.LOSS, BATCH) or "")
    assert "nobody sent" in (judge(SENT[1:], TOPIC, rows(*TOPIC)).contradicts(Shows.NEITHER, BATCH) or "")


def test_tables_are_read_with_their_counts(tmp_path: Path) -> None:
    assert read_rows(tmp_path / "none", merged=False) == []
    columns = {"partition": [0, 1], "offset": [0, 5], "key": [b"a", b"b"], "value": [b"c", b"d"], "n": [1, 2]}
    write_deltalake(str(tmp_path / "table"), pa.table(columns))
    found = read_rows(tmp_path / "table", merged=True)
    assert sorted(found, key=lambda row: row.times) == [
        Row(TopicRecord(0, 0, b"a", b"c"), 1),
        Row(TopicRecord(1, 5, b"b", b"d"), 2),
    ]
    assert {row.times for row in read_rows(tmp_path / "table", merged=False)} == {1}


def copies(*records: TopicRecord) -> list[Delivered]:
    return [Delivered(record.key, record.value) for record in records]


def test_copies_are_compared_by_key_and_value() -> None:
    assert judge_copies(SENT, TOPIC, copies(*TOPIC)).contradicts(Shows.NEITHER, BATCH) is None
    assert judge_copies(SENT, TOPIC, copies(*TOPIC[2:])).lost == 2
    assert judge_copies(SENT, TOPIC, copies(*TOPIC, TOPIC[0])).contradicts(Shows.DUPLICATES, BATCH) is None
    for made_up in (Delivered(TOPIC[0].key, b"other"), Delivered(None, TOPIC[0].value), Delivered(TOPIC[0].key, None)):
        found = judge_copies(SENT, TOPIC, [*copies(*TOPIC), made_up])
        assert "copies of records that nobody sent" in (found.contradicts(Shows.NEITHER, BATCH) or "")
    assert "in the topic twice" in "".join(
        judge_copies(SENT, [*TOPIC, TopicRecord(0, 3, *SENT[0])], copies(*TOPIC)).strange
    )


RULED = [
    TopicRecord(partition, number // 2, key, value) for number, (partition, key, value) in enumerate(make(range(6)))
]
RULED_SENT = [(record.key, record.value) for record in RULED]
GOOD = [record for record in RULED if not is_rejected(record.value)]
BAD = [record for record in RULED if is_rejected(record.value)]


def letter(record: TopicRecord, **changed: bytes | None) -> Delivered:
    headers = {
        "reason": b"the rule",
        "topic": b"input",
        "partition": b"%d" % record.partition,
        "offset": b"%d" % record.offset,
    }
    return Delivered(record.key, record.value, tuple({**headers, **changed}.items()))


def test_good_records_belong_in_the_table_and_others_in_the_dead_letters() -> None:
    letters = [letter(record) for record in BAD]
    verdict = judge_dead_letters(RULED_SENT, RULED, rows(*GOOD), letters, "input")
    assert (verdict.records, verdict.lost, verdict.duplicated, verdict.strange) == (6, 0, 0, ())
    assert {record.partition for record in BAD} == {record.partition for record in GOOD} == {0, 1}
    assert judge_dead_letters(RULED_SENT, RULED, rows(*GOOD[1:]), letters, "input").lost == 1
    assert judge_dead_letters(RULED_SENT, RULED, rows(*GOOD), letters[1:], "input").lost == 1
    assert judge_dead_letters(RULED_SENT, RULED, rows(*GOOD), [*letters, letters[0]], "input").duplicated == 1


@pytest.mark.parametrize(
    ("table", "letters", "says"),
    [
        (RULED, [letter(record) for record in BAD], "rows that the rule rejects"),
        (GOOD, [letter(record) for record in RULED], "dead letters that the rule lets pass"),
        (GOOD, [letter(BAD[0], offset=b"77"), letter(BAD[1])], "dead letters that are not records of the topic"),
        (GOOD, [letter(BAD[0], partition=b"x"), letter(BAD[1])], "without origin or reason"),
        (GOOD, [letter(BAD[0], topic=b"other"), letter(BAD[1])], "without origin or reason"),
        (GOOD, [letter(BAD[0], reason=None), letter(BAD[1])], "without origin or reason"),
        (GOOD, [Delivered(BAD[0].key, BAD[0].value), letter(BAD[1])], "without origin or reason"),
    ],
)
def test_what_is_in_the_wrong_place_or_has_no_origin_is_strange(
    table: list[TopicRecord], letters: list[Delivered], says: str
) -> None:
    verdict = judge_dead_letters(RULED_SENT, RULED, rows(*table), letters, "input")
    assert says in (verdict.contradicts(Shows.NEITHER, BATCH) or "")


def test_the_judge_knows_nothing_of_what_it_judges() -> None:
    for module in ("judge", "records", "transactions"):
        text = (Path(__file__).resolve().parents[3] / "lab" / "verify" / f"{module}.py").read_text()
        imports = [line for line in text.splitlines() if line.startswith(("import ", "from "))]
        assert not [line for line in imports if line.split()[1].startswith(FORBIDDEN)]


FORBIDDEN = tuple(
    f"sparkonce.{part}" for part in ("connectors", "exactly_once", "offset_store", "broker_lite", "kafka")
)


def test_one_crash_hurts_one_batch_at_most() -> None:
    assert judge(SENT, TOPIC, rows(*TOPIC[BATCH:])).contradicts(Shows.LOSS, BATCH) is None
    assert judge(SENT, TOPIC, rows(*TOPIC[BATCH + 1 :])).contradicts(Shows.LOSS, BATCH) is not None
    assert judge(SENT, TOPIC, rows(*TOPIC, *TOPIC[:BATCH])).contradicts(Shows.DUPLICATES, BATCH) is None
    assert judge(SENT, TOPIC, rows(*TOPIC, *TOPIC[: BATCH + 1])).contradicts(Shows.DUPLICATES, BATCH) is not None
    assert judge(SENT, TOPIC, rows(*TOPIC, TOPIC[0], TOPIC[0])).contradicts(Shows.DUPLICATES, BATCH) is not None


def test_a_value_that_was_decoded_is_compared_as_it_was_sent(tmp_path: Path) -> None:
    """Also one that was decoded to something else, or to nothing."""
    sent = [value for _, _, value in make_documents(range(5))]
    assert [is_rejected(value) for value in sent] == [is_rejected(value) for _, _, value in make(range(5))]
    struct = pa.struct([pa.field("number", pa.int64())])
    values = pa.array([{"number": 1}, {"number": 2}, {"number": None}, None, {"number": 4}], struct)
    columns = {"partition": pa.array([0] * 5, pa.int32()), "offset": range(5), "key": [b"k"] * 5, "value": values}
    write_deltalake(tmp_path, pa.table(columns))
    found = [row.record.value for row in read_rows(tmp_path, merged=False)]
    assert found == [sent[1], sent[2], document(None), document(None), sent[4]]
    assert is_rejected(document(None))

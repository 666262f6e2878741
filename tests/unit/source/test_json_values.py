"""The compiled decoder of JSON against the careful one, which follows Spark; and what both make of single documents."""

from __future__ import annotations

import datetime
import decimal
import json
import math
import random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkonce.connectors.values import jackson_parser
from sparkonce.connectors.values.ddl import parse_schema
from sparkonce.connectors.values.jackson_parser import JacksonParser
from sparkonce.connectors.values.json_values import JsonDecoder
from sparkonce.connectors.values.options import JsonOptions
from sparkonce.connectors.values.zones import parse_zone
from tests.cases import each_case
from tests.chance import examples
from tests.json_documents import SCHEMA, documents, plain, random_schema

ZONES = ("UTC", "+05:30", "Europe/Paris")


def compare(schema: str, values: list[bytes | None], **options: Any) -> int:
    """Decode both ways; give how many documents the compiled way left to the careful one."""
    decoder = JsonDecoder(JsonOptions(parse_schema(schema), **options))
    careful = JacksonParser(JsonOptions(parse_schema(schema), **options))
    array = pa.array([b"junk", *values], pa.binary())[1:]  # with an offset, as slices have
    found, problems = decoder.decode(array)
    found.validate(full=True)
    rows = plain(found)
    one_by_one = [None if value is None else careful.parse(value) for value in values]
    bare = parse_schema(schema)
    kind = JsonDecoder(JsonOptions(bare, corrupt_column="")).decode(pa.array([], pa.binary()))[0].type
    fields = [None if each is None or each.fields is None else {**each.fields} for each in one_by_one]
    for row, value in zip(fields, values, strict=True):
        if row is not None and "_corrupt_record" in bare.names:
            bad = careful.parse(value or b"").problem is not None
            row["_corrupt_record"] = (value or b"").decode(errors="replace") if bad else None
    wanted = plain(pa.array(fields, kind))
    for value, one, other in zip(values, rows, wanted, strict=True):
        assert repr(one) == repr(other), value
    assert problems == {at: each.problem for at, each in enumerate(one_by_one) if each is not None and each.problem}
    _, odd = decoder.certain(array)
    return int(odd.shape[0])


@each_case("seed", range(6))
def test_both_ways_agree_on_random_documents(seed: int) -> None:
    some = documents(seed, 250)
    left = compare(SCHEMA, [*some, None], time_zone=ZONES[seed % len(ZONES)])
    assert left < len(some)


@each_case("seed", range(12))
def test_both_ways_agree_on_damaged_documents_of_random_schemas(seed: int) -> None:
    schema = random_schema(seed)
    compare(schema, [*documents(seed, 150, schema, damaged=0.7), None], time_zone=ZONES[seed % len(ZONES)])


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(1000, 1200))
def test_both_ways_agree_on_many_random_documents(seed: int) -> None:
    compare(SCHEMA, list(documents(seed, 1000)), time_zone=ZONES[seed % len(ZONES)])


JUNK = st.binary(max_size=40) | st.text("{}[]\":,'\\u0179eE+-.ntf \n", max_size=30).map(str.encode)


@given(st.lists(JUNK, min_size=8, max_size=8))
@settings(max_examples=examples(50))
def test_both_ways_agree_on_junk(junk: list[bytes]) -> None:
    schema = "a INT, b STRING, c ARRAY<DOUBLE>, d MAP<STRING, STRING>"
    some: list[bytes | None] = []
    for inside in junk:
        some += [inside, b'{"a":1,"b":' + inside + b"}", b'{"c":[' + inside + b'],"d":{' + inside + b"}}"]
    compare(schema, some)


@given(
    st.lists(
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
            max_leaves=8,
        ),
        min_size=1,
        max_size=12,
    ),
    st.booleans(),
)
@settings(max_examples=examples(70))
def test_both_ways_agree_on_right_documents(some: list[Any], ascii_only: bool) -> None:
    schema = "a STRING, b DOUBLE, c ARRAY<STRING>, d MAP<STRING, STRING>, e FLOAT, f BIGINT"
    compare(schema, [json.dumps(dict.fromkeys("abcdef", value), ensure_ascii=ascii_only).encode() for value in some])


@given(st.floats(allow_nan=False), st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_numbers_are_rounded_once(number: float, small: float) -> None:
    between = (small + math.nextafter(small, 4e38)) / 2
    texts = [repr(value) for value in (number, small, between) if not math.isinf(value)]
    compare("a DOUBLE, b FLOAT", [f'{{"a":{text},"b":{text}}}'.encode() for text in texts])


def one(schema: str, text: str | bytes, **options: Any) -> tuple[Any, str | None]:
    decoder = JsonDecoder(JsonOptions(parse_schema(schema), **options))
    found, problems = decoder.decode(pa.array([text.encode() if isinstance(text, str) else text]))
    return found[0].as_py(), problems.get(0)


def test_usual_documents_take_the_compiled_way() -> None:
    value = {
        "id": 12345678901, "name": "Zürich \n", "ok": True, "amount": 0.30000000000000004, "price": "12.50",
        "day": "2024-02-29", "at": "2024-02-29T12:00:00.5+01:00", "tags": ["a", None], "inner": {"x": -1},
        "raw": "AAE=", "map": {"k": 1.5}, "note": {"free": [1, "x", True]}, "unknown": [{}],
    }  # fmt: skip
    schema = (
        "id BIGINT, name STRING, ok BOOLEAN, amount DOUBLE, price DECIMAL(10,2), day DATE, at TIMESTAMP, "
        "tags ARRAY<STRING>, inner STRUCT<x: INT>, raw BINARY, map MAP<STRING, FLOAT>, note STRING"
    )
    assert compare(schema, [json.dumps(value).encode(), json.dumps(value, ensure_ascii=False, indent=2).encode()]) == 0


FIELDS = ("a", "b", "x" * 14, "y" * 15, "z" * 16, "u" * 29, "v" * 40, "inner", *(f"unknown {at}" for at in range(4)))


@given(st.data(), st.integers(0, 2**32))
@settings(max_examples=examples(50), deadline=None)
def test_documents_of_one_writer_take_the_compiled_way(data: st.DataObject, seed: int) -> None:
    """What is between two values repeats, until fields are left out or change places, or spaces differ."""
    dealer = random.Random(seed)
    schema = ", ".join(f"{name} BIGINT" for name in FIELDS[:7]) + ", inner STRUCT<a: BIGINT, b: BIGINT>"
    many = [f"more {at}" for at in range(data.draw(st.sampled_from([0, 0, 70])))]
    order = data.draw(st.permutations([*FIELDS, *many]))
    some = []
    for _ in range(20):
        names = [name for name in order if dealer.random() < 0.9]
        if dealer.random() < 0.2:
            dealer.shuffle(names)
        space = [dealer.choice(["", "", "", " ", "\n  "]) if dealer.random() < 0.3 else "" for _ in range(4)]
        value = {name: dealer.choice(['{"b":1,"a":22}', '{"a" : 3}', "{}"]) for name in names if name == "inner"}
        texts = [f'"{name}"{space[0]}:{space[1]}{value.get(name, dealer.randrange(10**18))}' for name in names]
        some.append(f"{{{space[2]}{f'{space[3]},{space[2]}'.join(texts)}{space[3]}}}".encode())
    assert compare(schema, some) == 0
    damaged = [bytes(dealer.choice(b'{}",: \\a') if dealer.random() < 0.01 else byte for byte in each) for each in some]
    compare(schema, [one for pair in zip(some, damaged, strict=True) for one in pair])


def test_a_number_that_is_too_long_makes_a_document_malformed_whoever_reads_it() -> None:
    """Jackson has a limit for each number, that of Spark's StreamReadConstraints: 1,000 characters."""
    numbers = ["9" * 1000, "9" * 1001, "-" + "9" * 1000, "0." + "0" * 998, "0." + "0" * 999, "1e" + "0" * 999]
    assert compare("a INT, b STRING", [f'{{"b":"x","c":{number},"a":1}}'.encode() for number in numbers]) == 4


def test_a_name_that_is_too_long_makes_a_document_malformed_whoever_reads_it() -> None:
    """Jackson's limit is 50,000 characters; the compiled way counts bytes, and leaves the rest to the careful one."""
    names = ["x" * 49_999, "x" * 50_000, "é" * 49_999, "é" * 50_001]
    texts = [f'{{"{name}":{{"{name}":1}},"b":{{"{name}":2}},"a":1}}'.encode() for name in names]
    assert compare("a INT, b MAP<STRING, INT>", texts) == 3
    assert [one("a INT", text)[1] is None for text in texts] == [True, True, True, False]


def test_a_lone_surrogate_in_an_object_that_is_a_text_stays_an_escape() -> None:
    """As Jackson writes it; in a string itself Java has a question mark for it."""
    fields, problem = one("s STRING, t STRING", '{"s":{"a\\udfff":"x\\ud800"},"t":"\\ud800"}')
    assert (fields, problem) == ({"s": '{"a\\uDFFF":"x\\uD800"}', "t": "?"}, None)


@each_case(
    ("number", "z"),
    [("1.0e", None), ("1e", 7), ("1.", 7), ("0e", None), ("-0.5e", None), ("-1.0e+", None), ("1.0e,2", None)],
)
def test_reading_goes_on_where_jackson_does_behind_a_broken_number(number: str, z: int | None) -> None:
    """Behind the point or the e, or one character behind the number: so the end of the array is seen, or is not."""
    assert one("v ARRAY<DOUBLE>, z INT", f'{{"v":[{number}],"z":7}}')[0] == {"v": None, "z": z}


@each_case("digits", ["০১২৩৪", "߀߁߂߃߄", "٠١٢٣٤"])
def test_decimals_and_numbers_of_days_may_have_the_digits_of_any_script(digits: str) -> None:
    """As in Java's BigDecimal and Integer.parseInt, which read UTF-16 units: beyond U+FFFF they know none."""
    minus, four = f"-{digits[1]}{digits[2]}.{digits[3]}e{digits[1]}", digits[4]
    assert one("m DECIMAL(9,2), d DATE", f'{{"m":"{minus}","d":"{four}"}}') == (
        {"m": decimal.Decimal("-123.00"), "d": datetime.date(1970, 1, 5)},
        None,
    )
    far = "\U0001d7ce\U0001d7cf"
    assert one("m DECIMAL(9,2), d DATE", f'{{"m":"{far}","d":"{far}"}}')[0] == {"m": None, "d": None}


@each_case("special", ['"', "\\", "\\u0041", "\\x", "\x1f", "\x7f", "\u00e9", "\U0001f600"])
def test_strings_end_and_are_escaped_at_any_place(special: str) -> None:
    """Text is searched in steps of some bytes: each place of a step, and the bytes that no step is left for."""
    texts = ["x" * before + special + "y" * after for before in range(36) for after in (0, 1, 15, 16, 40)]
    compare("a STRING, b INT", [f'{{"a":"{text}","b":7}}'.encode() for text in texts])


def test_documents_are_decoded_in_pieces_that_fit_together(monkeypatch: pytest.MonkeyPatch) -> None:
    some = [*documents(7, 150), None, b"{", None]
    monkeypatch.setattr("sparkonce.connectors.values.json_values.BYTES_AT_ONCE", 1000)
    assert compare(SCHEMA, some) > 1
    monkeypatch.setattr("sparkonce.connectors.values.json_values.BYTES_AT_ONCE", 1)
    compare("a INT", [b"", b'{"a":1}', None, b'{"a":"x"}', b'{"a":2}'])
    compare("a INT", [None, None])


def test_numbers_at_the_edge_and_no_numbers_take_the_compiled_way() -> None:
    wholes = ("9223372036854775807", "-9223372036854775807", "1000000000000000000", "999999999999999999")
    assert compare("a BIGINT", [f'{{"a":{number}}}'.encode() for number in wholes]) == 0
    assert compare("a BIGINT", [b'{"a":9223372036854775808}', b'{"a":18446744073709551616}']) == 2
    none = [f'{{"a":{word},"b":{word}}}'.encode() for word in ("NaN", "Infinity", "-Infinity")]
    assert compare("a DOUBLE, b FLOAT", none) == 0
    assert compare("a INT, b STRING", [*none, b'{"b":[NaN]}', b'{"a":NaN1}', b'{"c":Inf}', b'{"c":-Infinit']) == 7


def test_what_does_not_fit_is_null_and_the_rest_is_kept() -> None:
    fields, problem = one("a INT, b STRING, s STRUCT<x: INT, y: STRING>", '{"a":"x","b":"y","s":{"x":1.5,"y":"z"}}')
    assert fields == {"a": None, "b": "y", "s": {"x": None, "y": "z"}}
    assert problem == "field a: 'x' is not of type int"


@each_case(
    ("text", "problem"),
    [
        ('{"a":', "it is not JSON: expected a value at character 5"),
        ('{"a":1', "it is not JSON: it ends too early at character 6"),
        ("not json at all 8", "it is not JSON: expected a value, found 'not' at character 1"),
        ("junk", "it is not JSON: expected a value, found 'junk' at character 1"),
        (' {"a": nullx}', "it is not JSON: expected a value, found 'nullx' at character 8"),
        ('{"a":tru}', "it is not JSON: expected a value, found 'tru' at character 6"),
        ('{"a":-Infinit}', "it is not JSON: expected a value, found '-Infinit' at character 6"),
        ("t" * 99, f"it is not JSON: expected a value, found {'t' * 20!r} at character 1"),
        ("}", "it is not JSON: unexpected } at character 1"),
        ("[]", "it is not a JSON object, but an array"),
        ("null", "it is not a JSON object, but null"),
        ('{"a":99999999999}', "field a: 99999999999 is not of type int: it is out of range"),
        ('{"a":""}', "field a: an empty string is not of type int"),
        ('{"r":[1,"x"]}', "field r: 'x' is not of type int"),
        ('{"r":5}', "field r: 5 is not of type array<int>"),
    ],
)
def test_reasons(text: str, problem: str) -> None:
    assert one("a INT, r ARRAY<INT>", text)[1] == problem


def test_a_text_without_a_token_is_null_and_no_problem() -> None:
    assert one("a INT", "") == (None, None)
    assert one("a INT", " \n") == (None, None)


def test_a_time_without_a_day_is_refused() -> None:
    """Spark takes the day on which the record is read: a record would not be the same when read again."""
    assert one("a TIMESTAMP", '{"a":"12:30:00"}') == (
        {"a": None},
        "field a: '12:30:00' is not of type timestamp: it is not a timestamp",
    )


@each_case(
    ("number", "text"),
    [
        ("-7.629266789195084e+17", "-7.629266789195084E17"),
        ("0.0010", "0.001"),
        ("0.00099", "9.9E-4"),
        ("9999999.5", "9999999.5"),
        ("10000000.0", "1.0E7"),
        ("1e2", "100.0"),
        ("-0.0", "-0.0"),
        ("12345678901234567890", "12345678901234567890"),
    ],
)
def test_numbers_in_texts_are_written_as_java_from_19_on_does(number: str, text: str) -> None:
    assert one("a STRING", f'{{"a":{number}}}') == ({"a": text}, None)


def test_patterns() -> None:
    fields, problem = one(
        "d DATE, t TIMESTAMP, w TIMESTAMP_NTZ",
        '{"d":"29.02.2024","t":"2024-02-29 10:00:00.5","w":"1/2/24 3"}',
        date_format="dd.MM.yyyy",
        timestamp_format="yyyy-MM-dd HH:mm:ss[.SSS][XXX]",
        timestamp_ntz_format="M/d/yy H",
        time_zone="Europe/Paris",
    )
    assert problem is None
    assert [str(value) for value in fields.values()] == [
        "2024-02-29",
        "2024-02-29 09:00:00.500000+00:00",
        "2024-01-02 03:00:00",
    ]
    assert compare("d DATE", [b'{"d":"29.02.2024"}', b'{"d":"30.02.2024"}', b'{"d":5}'], date_format="dd.MM.yyyy") == 2


@pytest.mark.parametrize("pattern", [None, "yyyy-MM-dd"])
def test_dates_that_fit_no_date_are_malformed_and_others_of_far_years_are_not(pattern: str | None) -> None:
    """One such record would end each task that reads it: Arrow's dates are days of 32 bits, as Spark's are."""
    years = ("+5881580", "+5881581", "-5877641", "-5877642", "9999999", "-9999999", "+999999999", "-999999999")
    texts: list[bytes | None] = [f'{{"a":"{year}-07-01"}}'.encode() for year in years]
    compare("a DATE", texts, date_format=pattern)
    decoder = JsonDecoder(JsonOptions(parse_schema("a DATE"), date_format=pattern))
    found, problems = decoder.decode(pa.array(texts, pa.binary()))
    days = found.field(0).cast(pa.int32()).to_pylist()
    assert [days[0], days[2]] == [(1 << 31) - 11, 8 - (1 << 31)]
    assert set(range(len(years))) == problems.keys() | {0, 2}
    assert days[1] is days[3] is None
    compare("a ARRAY<DATE>", [b'{"a":["9999999-01-01"]}', b'{"a":["+999999999-01-01"]}'], date_format=pattern)


@pytest.mark.parametrize("number", ["1e-999999999", "-1e-999999999", "0e999999999", "1e-99999999999999999999"])
def test_a_float_with_a_far_exponent_is_not_made_a_fraction(number: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """That would take hours of one call, which no signal ends."""

    def fraction(literal: object) -> None:
        raise AssertionError(f"hours pass with {literal}")

    monkeypatch.setattr(jackson_parser, "Fraction", fraction)
    fields = JacksonParser(JsonOptions(parse_schema("a FLOAT"))).parse(f'{{"a":{number}}}'.encode()).fields
    assert fields == {"a": 0.0}


@pytest.mark.parametrize("zone", ["posix/Europe/Paris", "right/UTC", "posixrules", "localtime", "X" * 100_000])
def test_zones_that_java_does_not_know_are_refused_in_few_words(zone: str) -> None:
    with pytest.raises(ValueError, match="there is no time zone") as caught:
        parse_zone(zone)
    assert len(str(caught.value)) < 100


def test_local_times_of_a_region_change_with_its_clocks() -> None:
    texts = [
        f'{{"a":"2024-{day}T{hour:02}:30:00"}}'.encode() for day in ("03-31", "10-27", "07-01") for hour in range(5)
    ]
    assert compare("a TIMESTAMP", texts, time_zone="Europe/Paris") == 0
    assert compare("a TIMESTAMP", [b'{"a":"1850-01-01T00:00:00"}'], time_zone="Europe/Paris") == 1


@each_case(
    "text",
    [
        "a",
        "a INT b INT",
        "a INT,, b INT",
        "a ARRAY<INT",
        "a DECIMAL(39,0)",
        "",
        "a 5",
        "a DECIMAL(5,6)",
    ],
)
def test_schemas_that_spark_refuses_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected|has no fields|precision must be|is not a type"):
        parse_schema(text)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("array<int>", "ARRAY has no name"),
        ("MAP<STRING, INT>", "MAP has no name"),
        ("decimal(5,2)", "DECIMAL has no name"),
        ("int", "INT has no name"),
        ('{"type":"array","elementType":"integer","containsNull":true}', "the root is array"),
    ],
)
def test_the_root_of_a_schema_must_be_named_fields(text: str, found: str) -> None:
    with pytest.raises(ValueError, match=rf"{found}.*named fields"):
        parse_schema(text)


def test_a_column_may_have_the_name_of_a_type() -> None:
    assert parse_schema("array INT, map: STRING, int INT").names == ["array", "map", "int"]

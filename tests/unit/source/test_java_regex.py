"""Java's regular expressions in Python: what is rewritten, and what is refused and where."""

from __future__ import annotations

import pytest

from sparkonce.connectors.kafka_source.java_regex import PatternError, compile_java_pattern
from sparkonce.connectors.kafka_source.options import SourceOptions
from sparkonce.connectors.kafka_source.topic_choice import TopicPattern, pattern
from sparkonce.options import OptionError
from tests.cases import each_case


@each_case(
    ("text", "found", "not_found"),
    [
        (r"flights-.*", ["flights-1", "my-flights-1"], ["flights", "Flights-1"]),
        (r"^flights$", ["flights"], ["flights-1", "my-flights"]),
        (r"\Qa.b\E-\d+", ["a.b-7"], ["aXb-7", "a.b-x"]),
        (r"\Qa.b", ["a.b"], ["aXb"]),
        (r"(?<name>ab)\k<name>", ["abab"], ["ab-ab"]),
        (r"(a|b)\1", ["aa", "bb"], ["ab"]),
        (r"^\p{Lower}\p{Upper}$", ["aB"], ["AB", "ab"]),
        (r"^\p{Alpha}+[\p{Digit}_]*\z", ["abc1_2"], ["1abc"]),
        (r"^\P{Alpha}+$", ["12-_."], ["1a"]),
        (r"^[^\p{L}]+$", ["12"], ["1a"]),
        (r"^\pL\p{Lu}\p{IsDigit}\p{javaLowerCase}$", ["aB1c"], ["ab1c", "aB1C"]),
        (r"^\p{IsAlphabetic}\p{Punct}$", ["a_", "z."], ["a1"]),
        (r"(?i)FLIGHTS", ["flights", "FlightS"], ["flight"]),
        (r"^(?i:A)b$", ["ab", "Ab"], ["aB"]),
        (r"^(?iu-s:A)b$", ["ab"], ["aB"]),
        (r"(?d)a", ["a"], ["b"]),
        (r"^a{2}b{1,}c{0,1}$", ["aab", "aabbc"], ["ab", "aabcc"]),
        (r"^a*+ab$", [], ["aab"]),
        (r"^(?>a|ab)c$", ["ac"], ["abc"]),
        (r"^a++b?+$", ["aab"], ["ba"]),
        (r"(?=a)\w(?!b)", ["ac"], ["ab"]),
        (r"(?<=x-)y", ["x-y"], ["z-y"]),
        (r"(?<!x-)y", ["z-y"], ["x-y"]),
        (r"^[a-c.\-\]]+$", ["a.c-", "]"], ["d"]),
        (r"^[]a]+$", ["a]"], ["b"]),
        (r"^[a|b~~x-]+$", ["a|b", "~x-"], ["c"]),
        (r"^[+--a]+$", ["+,-a"], ["."]),
        (r"\x61\x{62}\u0063\0144", ["abcd"], ["abce"]),
        (r"^a\Z", ["a"], ["ab"]),
        (r"a\.b\-c\_d", ["a.b-c_d"], ["aXb-c_d"]),
        (r"^\h*a\H\v*$", ["ab"], ["b"]),
        (r"\cA|\e|\t|x", ["x"], ["A"]),
        ("topic[0-9]{1,3}|other", ["topic12", "other"], ["topic"]),
    ],
)
def test_patterns_find_what_java_finds(text: str, found: list[str], not_found: list[str]) -> None:
    compiled = compile_java_pattern(text)
    assert [name for name in [*found, *not_found] if compiled.search(name)] == found


@each_case(
    ("text", "reason"),
    [
        ("a{", "'{' at position 1 is no repetition"),
        ("a{,3}", "'{' at position 1 is no repetition"),
        ("[a-z&&[^b]]", "a class within a class at position 4"),
        ("[a[b]]", "a class within a class at position 2"),
        ("[ab", "the class that begins at position 0 has no end"),
        ("a(?i)b", r"the flag '\(\?i\)' in the middle at position 1"),
        ("(?x) a", "the flag 'x' at position 0"),
        ("(?-i)a", "the flag '.*' in the middle"),
        ("(?'n'a)", "at position 0 has no equivalent"),
        (r"\Ga", r"\\G at position 0"),
        (r"[\b]", r"\\b at position 1"),
        (r"\p{IsGreekish}", "the class 'IsGreekish'"),
        (r"\p{Alpha", "'}' is missing after position 3"),
        (r"\x{110000}", "names no character"),
        (r"\xg1", r"\\x at position 0 is not followed by the number"),
        (r"\kname", "not followed by <name>"),
        ("a\\", "the pattern ends too early"),
        ("(?<=a+)b", "not a regular expression, or one that only Java has: look-behind"),
        ("(ab", "not a regular expression"),
        ("*a", "not a regular expression"),
    ],
)
def test_what_python_cannot_say_is_refused_with_its_place(text: str, reason: str) -> None:
    with pytest.raises(PatternError, match=reason):
        compile_java_pattern(text)


def test_the_option_names_itself() -> None:
    given = {"kafka.bootstrap.servers": "h:1", "subscribePattern": " [a "}
    with pytest.raises(OptionError, match=r"subscribePattern=' \[a ': the class that begins"):
        SourceOptions.read(given)
    with pytest.raises(OptionError, match="the pattern to subscribe is empty"):
        SourceOptions.read({**given, "subscribePattern": "  "})
    found = SourceOptions.read({**given, "subscribePattern": " a+ "}).pattern
    assert isinstance(found, TopicPattern)
    assert (found.text, found.finds("baab"), found.finds("b")) == ("a+", True, False)
    assert found == pattern("a+")

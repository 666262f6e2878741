"""Cases in a loop fail as parametrized tests would: all run, and those that failed are named."""

from __future__ import annotations

import pytest

from tests.cases import each_case


def test_all_cases_run_and_those_that_fail_are_named() -> None:
    seen = []

    @each_case("number, text", [(1, "a"), (2, "b"), (3, "c")], ids=["one", "two", "three"])
    def judged(number: int, text: str) -> None:
        seen.append((number, text))
        assert number % 2 == 0, text

    with pytest.raises(AssertionError, match=r"2 of 3 cases failed:\none: AssertionError: a[\s\S]*three: ") as failed:
        judged()
    assert seen == [(1, "a"), (2, "b"), (3, "c")]
    assert isinstance(failed.value.__cause__, AssertionError)


def test_a_skip_hides_no_failure() -> None:
    @each_case("number", [1, 2])
    def judged(number: int) -> None:
        assert number > 1
        pytest.skip("two")

    with pytest.raises(AssertionError, match="1 of 2 cases failed"):
        judged()


def test_loops_are_nested() -> None:
    seen = set()

    @each_case("one", "ab")
    @each_case("other", [1, 2])
    def judged(one: str, other: int) -> None:
        seen.add((one, other))

    judged()
    assert seen == {("a", 1), ("a", 2), ("b", 1), ("b", 2)}


def test_cases_and_their_names_are_as_many() -> None:
    with pytest.raises(AssertionError, match="each case has a name"):
        each_case("number", [1, 2], ids=["one"])
    with pytest.raises(AssertionError, match="no test without cases"):
        each_case("number", [])


@each_case("number", [1, 2])
def test_fixtures_are_given_to_each_case(number: int, request: pytest.FixtureRequest) -> None:
    assert request.node.name == "test_fixtures_are_given_to_each_case"

"""A transactional id is used again only when no decision that matters can name it."""

from __future__ import annotations

from sparkonce.connectors.kafka_sink.tasks import take_id
from sparkonce.connectors.runtime.cache import MAX_KEPT


def test_an_id_rests_until_the_decision_that_may_name_it_is_not_the_last_one() -> None:
    prefix = "sparkonce/rests/"
    first = take_id(prefix, decided=7)  # its transaction is in decision 8, if in any
    second = take_id(prefix, decided=7)  # a second try of a task of the same batch
    third = take_id(prefix, decided=8)
    assert len({first, second, third}) == 3
    assert take_id(prefix, decided=9) == first  # decision 9 is the last one, and does not name it
    assert {take_id(prefix, decided=10), take_id(prefix, decided=10)} == {second, third}


def test_no_id_is_made_twice_by_a_process_that_serves_many_applications() -> None:
    names = [take_id(f"sparkonce/app-{number}/", decided=1) for number in range(MAX_KEPT + 1)]
    again = [take_id(f"sparkonce/app-{number}/", decided=1) for number in range(MAX_KEPT + 1)]
    assert not set(names) & set(again)

"""What a name for each topic is."""

from __future__ import annotations

import pytest

from sparkonce.offset_store.by_topic import TopicNames


def test_tables_may_be_named_topic_by_topic() -> None:
    names, tables = TopicNames(), '{"orders": "/lake/o", "customers.eu": "s3://lake/c"}'
    assert names.are_in(tables)
    assert names.of(tables, "orders") == "/lake/o"
    assert names.of(f"delta:{tables}", "customers.eu") == "delta:s3://lake/c"
    with pytest.raises(ValueError, match="topic other has no table"):
        names.of(tables, "other")


@pytest.mark.parametrize("text", ["/lake/{topic}", "delta:/lake/{topic}", "/lake", "{topic}", "{}"])
def test_other_texts_name_no_topics(text: str) -> None:
    assert TopicNames().of(text, "a") == text.replace("{topic}", "a")


@pytest.mark.parametrize("text", ['{"a": 1}', '{"a": ""}', '{"a": "/x", }', '{"a" "/x"}'])
def test_what_begins_as_names_of_topics_must_be_such(text: str) -> None:
    with pytest.raises(ValueError, match=r"JSON object that it begins as|expected a path for each topic"):
        TopicNames().are_in(text)

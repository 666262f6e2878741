"""Names of options in any case, levels of isolation: cases of KafkaSourceProviderSuite and KafkaOffsetReaderSuite."""

from __future__ import annotations

import pytest

from sparkonce.connectors.kafka_source.options import SourceOptions
from sparkonce.options import OptionError

GIVEN = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"}


def read(name: str, value: str) -> list[SourceOptions]:
    """Read an option whose name is in capitals, and in small letters."""
    return [SourceOptions.read({**GIVEN, written: value}) for written in (name.upper(), name.lower())]


def test_options_of_a_batch() -> None:
    """The one option that a batch query has of its own.

    Spark: KafkaSourceProviderSuite "batch mode - options should be handled as case-insensitive"
    """
    for options in read("kafkaConsumer.pollTimeoutMs", "1111"):
        options.for_batch()
        assert options.poll_timeout_ms == 1111


@pytest.mark.parametrize(
    ("name", "attribute"),
    [
        ("kafkaConsumer.pollTimeoutMs", "poll_timeout_ms"),
        ("maxOffsetsPerTrigger", "max_offsets_per_trigger"),
        ("minOffsetsPerTrigger", "min_offsets_per_trigger"),
        ("maxTriggerDelay", "max_trigger_delay_ms"),
        ("fetchOffset.numRetries", "offset_retries"),
        ("fetchOffset.retryIntervalMs", "offset_retry_interval_ms"),
    ],
)
def test_options_of_a_stream(name: str, attribute: str) -> None:
    """Each number arrives; one without a unit is milliseconds.

    Spark: KafkaSourceProviderSuite "micro-batch mode - options should be handled as case-insensitive"
    """
    for options in read(name, "1111"):
        options.for_stream()
        assert getattr(options, attribute) == 1111


@pytest.mark.parametrize(
    ("given", "read_committed"),
    [
        ({}, False),
        ({"kafka.isolation.level": "read_uncommitted"}, False),
        ({"kafka.isolation.level": "read_committed"}, True),
    ],
)
def test_levels_of_isolation(given: dict[str, str], read_committed: bool) -> None:
    """Uncommitted records are read unless told otherwise, as by Kafka's consumer.

    Spark: KafkaOffsetReaderSuite "isolationLevel must give back default isolation level when not set"
    Spark: KafkaOffsetReaderSuite "isolationLevel must give back READ_UNCOMMITTED when set"
    Spark: KafkaOffsetReaderSuite "isolationLevel must give back READ_COMMITTED when set"
    """
    assert SourceOptions.read({**GIVEN, **given}).settings.read_committed is read_committed


def test_a_level_of_isolation_that_is_none() -> None:
    """Anything else is refused.

    Spark: KafkaOffsetReaderSuite "isolationLevel must throw exception when invalid isolation level set"
    """
    with pytest.raises(OptionError, match=r"isolation\.level"):
        SourceOptions.read({**GIVEN, "kafka.isolation.level": "intentionally_invalid"})

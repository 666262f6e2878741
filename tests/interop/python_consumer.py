"""kafka-python's consumer, begun so that it does not miss its assignment."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kafka import KafkaConsumer


@contextmanager
def python_consumer(topic: str, **settings: Any) -> Iterator[KafkaConsumer]:
    """Subscribe to a topic that exists, and close in the end, also after a failure.

    kafka-python 3.0 that leads a group and has heard nothing of the topic before it joins may hand out an empty
    assignment and never look again, so it is made to ask first. One that is left open goes on trying to connect, and
    leaves a socket behind each time, which then fails other tests.
    """
    consumer = KafkaConsumer(**settings)
    try:
        assert consumer.partitions_for_topic(topic), f"kafka-python does not see topic {topic}"
        consumer.subscribe([topic])
        yield consumer
    finally:
        consumer.close()

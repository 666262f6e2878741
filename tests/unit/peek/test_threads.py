"""Topics are read in several threads at once, as by the requests of several pages."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from kafka import KafkaProducer

from sparkonce import EmbeddedBroker
from sparkonce.jobs.cli.peek.reading import TopicReader, Wanted

TOPICS = [f"topic-{number}" for number in range(4)]
RECORDS, READERS, ROUNDS = 300, 8, 15


def test_each_reader_finds_the_records_of_its_topic() -> None:
    with EmbeddedBroker() as broker:
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers)
        for topic in TOPICS:
            for number in range(RECORDS):
                producer.send(topic, f"{topic}:{number}".encode(), partition=0)
        producer.close()

        def read(number: int) -> None:
            topic = TOPICS[number % len(TOPICS)]
            reader = TopicReader({"kafka.bootstrap.servers": broker.bootstrap_servers}, topic)
            for _ in range(ROUNDS):
                found = reader.last(reader.bounds(Wanted()), RECORDS, None)
                assert [each.value for each in found] == [f"{topic}:{each}".encode() for each in range(RECORDS)]
            reader.close()

        with ThreadPoolExecutor(READERS) as pool:
            list(pool.map(read, range(READERS)))

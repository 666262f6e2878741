"""The brokers lose `__transaction_state` in the middle of a decision: nothing is guessed, and there is a way out."""

from __future__ import annotations

import shutil
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from sparkonce import EmbeddedBroker
from sparkonce.broker_lite.coordinators.transaction_log import TRANSACTIONS_TOPIC
from sparkonce.connectors.kafka_sink import administration
from sparkonce.exactly_once.errors import TransactionsGoneError
from sparkonce.kafka.client.client import Client
from sparkonce.kafka.protocol.apis import ApiKey
from tests.interop.plain_client import PlainClient
from tests.unit.kafka_sink.transactions_support import OUTPUT_TOPIC, SOURCE_TOPIC, Pipeline, settings_of


@pytest.mark.parametrize("committed", [0, 1, 3])
def test_the_transactions_topic_is_lost_in_mid_decision(tmp_path: Path, committed: int) -> None:
    """``committed`` of three decided transactions, before the broker goes down."""
    with ExitStack() as shut:
        broker = shut.enter_context(EmbeddedBroker(tmp_path, process=True, config={"num.partitions": 1}))
        with PlainClient(broker.bootstrap_servers) as plain:
            for topic in (SOURCE_TOPIC, OUTPUT_TOPIC):
                plain.create_topic(topic)
        client = shut.enter_context(closing(Client(settings_of(broker.bootstrap_servers))))
        pipeline = Pipeline(client)
        prepared = [pipeline.task(number) for number in range(3)]
        pipeline.decide(*prepared)
        for each in prepared[:committed]:
            pipeline.commit(each)
        broker.kill()
        for directory in tmp_path.glob(f"{TRANSACTIONS_TOPIC}-*"):
            shutil.rmtree(directory)
        broker.restart()
        for _ in range(2):
            with pytest.raises(TransactionsGoneError, match=r"is unknown.*__transaction_state.*find-hanging"):
                pipeline.another_driver().recover()
        visible = pipeline.visible()
        assert len(visible) == 3 * committed
        with PlainClient(broker.bootstrap_servers) as plain:
            assert len(open_producers(plain)) == 3 - committed
            for producer_id, epoch in open_producers(plain):  # as kafka-transactions.sh abort does
                marker = (producer_id, epoch, False, [(OUTPUT_TOPIC, [0])], -1)
                answer = plain.ask(ApiKey.WRITE_TXN_MARKERS, 1, markers=[marker])
                assert answer.markers[0].topics[0].partitions[0].error_code == 0
            assert not open_producers(plain)
        assert administration.accept(pipeline.another_driver()) is not None
        pipeline.driver = pipeline.another_driver()
        pipeline.identity = pipeline.driver.recover()
        pipeline.batch_id += 1
        pipeline.driver.finish(pipeline.decide(pipeline.task(0)))
        assert len(pipeline.visible()) == len(visible) + 3


def open_producers(plain: PlainClient) -> list[tuple[int, int]]:
    """Return who has a transaction open in the output, by id and epoch."""
    answer = plain.ask(ApiKey.DESCRIBE_PRODUCERS, 0, topics=[(OUTPUT_TOPIC, [0])])
    producers = answer.topics[0].partitions[0].active_producers
    return [(each.producer_id, each.producer_epoch) for each in producers if each.current_txn_start_offset >= 0]

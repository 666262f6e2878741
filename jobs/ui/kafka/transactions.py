"""Reads open transactions: those of our sink, with the reason; and all others."""

from __future__ import annotations

from sparkonce.connectors.kafka_sink.decisions import DEFAULT_TOPIC
from sparkonce.connectors.kafka_sink.transactions import TransactionClient
from sparkonce.jobs.cli.housekeeping.open_transactions import application_of, look
from sparkonce.jobs.ui.kafka.state import OtherTransaction, TransactionsState
from sparkonce.kafka.client.client import Client
from sparkonce.kafka.client.settings import ClientSettings

MAX_OTHERS = 500


class TransactionsLook:
    """Reads transactions; belongs to one thread."""

    def __init__(self, settings: ClientSettings) -> None:
        self._client = Client(settings)
        self._transactions = TransactionClient(self._client)

    def __call__(self) -> TransactionsState:
        """Read once."""
        names = [name for name in self._transactions.open_transactions("") if application_of(name) is None]
        found = self._transactions.describe(names[:MAX_OTHERS]).values()
        others = tuple(
            OtherTransaction(
                each.transactional_id,
                each.state.value,
                each.producer_id,
                each.epoch,
                each.started_ms,
                each.timeout_ms,
                tuple(sorted(each.partitions)),
            )
            for each in found
            if each.state.is_open
        )
        return TransactionsState(look(self._client, DEFAULT_TOPIC, None), others)

    def close(self) -> None:
        """Close all connections."""
        self._client.close()

"""Resolves, before a source starts from a group's offsets, a sink's decision that can only be undone.

The offsets of a decision are in the group as soon as it has landed. If all of its transactions have timed out since,
the next driver undoes it; but a source without a checkpoint reads the group before the sink does anything, and would
start past records that were never written. So the source requests that first. Nothing changes if a decision can be
finished: then its offsets are valid.
"""

from __future__ import annotations

import logging

from sparkonce.connectors.kafka_sink.decisions import DEFAULT_TOPIC, DecisionTopicError
from sparkonce.connectors.kafka_sink.driver import Driver, Scope
from sparkonce.connectors.kafka_sink.transactions import TransactionError
from sparkonce.exactly_once.errors import DeliveryError
from sparkonce.exactly_once.transactions import DecisionFormatError
from sparkonce.kafka.client.client import Client
from sparkonce.kafka.client.metadata import MissingTopicError
from sparkonce.offset_store.errors import OffsetStoreError
from sparkonce.offset_store.group import Note
from sparkonce.offset_store.kafka_group import KafkaGroupOffsets

_log = logging.getLogger(__name__)


def settled_group(client: Client, group_id: str, app_id: str) -> KafkaGroupOffsets:
    """Return a group whose offsets were not left by a decision that must be undone.

    If that cannot be checked or done, the group is returned unchanged: the sink compares again, and stops at a gap.
    """
    group = KafkaGroupOffsets(client, group_id)
    notes = (Note.from_text(entry.metadata) for entry in group.fetch().values())
    if any(note is not None and note.app_id == app_id for note in notes):
        try:
            client.topics([DEFAULT_TOPIC])
            Driver(Scope(client.settings, app_id, DEFAULT_TOPIC, group_id), client).take_back_if_gone()
        except (MissingTopicError, PermissionError) as error:
            _log.debug("kafka_once: nothing was decided about %s that this user may see: %s", group, error)
        except (
            TransactionError,
            DecisionTopicError,
            DecisionFormatError,
            OffsetStoreError,
            DeliveryError,
            OSError,  # Kafka is unavailable, or a transaction of a dead driver is still open
        ) as error:
            _log.warning("kafka_once: could not check whether %s must be reverted: %s", group, error)
    return group

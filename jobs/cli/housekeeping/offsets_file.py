"""Offsets from the command line or a file, checked so that a reader finds them again."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sparkonce.jobs.shared.arguments import MAX_LONG, UsageError
from sparkonce.kafka.client.topic_ids import topic_id_from_text, topic_id_text
from sparkonce.offset_store.offsets import TopicPartition
from sparkonce.offset_store.txn_ids import OffsetTxn, offset_txn_id, parse_txn_id

MAX_PARTITION = 2**31 - 1


def topic_id(text: str) -> str:
    """Parse a topic's id as Kafka's tools print it: 16 bytes in URL-safe base64, 22 characters."""
    try:
        known = topic_id_text(topic_id_from_text(text)) == text
    except ValueError:
        known = False
    if not known or not text:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a topic id: 22 characters, as `sparkonce offsets show` and "
            "kafka-topics.sh --describe write them"
        )
    return text


def check_key(key: OffsetTxn) -> OffsetTxn:
    """Check that an offset can be found under its transaction id. Raises UsageError if not, or without partition."""
    tp = key.partition
    if not 0 <= tp.partition <= MAX_PARTITION:
        raise UsageError(f"partition {tp.partition} is not between 0 and {MAX_PARTITION}")
    found = parse_txn_id(offset_txn_id(key.app_id, key.source, tp))
    by_id = TopicPartition("", tp.topic_id, tp.partition)
    if found != OffsetTxn(key.app_id, key.source, by_id if tp.topic_id else tp.by_name):
        raise UsageError(
            f"there can be no topic {tp.topic!r} with topic id {tp.topic_id!r} and partition {tp.partition}"
        )
    return key


def read_offsets_file(file: str, app_id: str | None) -> dict[OffsetTxn, int]:
    """Read `sparkonce offsets show --json`'s output; ``-``: standard input. Raises UsageError if it is none."""
    try:
        document = json.loads(sys.stdin.read() if file == "-" else Path(file).read_text())
        return {
            _key(application, each): _offset(each["nextOffset"])
            for application in document["applications"]
            if app_id in (None, application["appId"])
            for each in application["offsets"]
        }
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error}") from error
    except argparse.ArgumentTypeError as error:
        raise UsageError(f"{file}: {error}") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UsageError(f"{file} is not what `sparkonce offsets show --json` writes: {error!r}") from error


def _key(application: Mapping[str, Any], each: Mapping[str, Any]) -> OffsetTxn:
    texts = {"appId": application["appId"], **{name: each[name] for name in ("source", "topic", "topicId")}}
    for name, value in texts.items():
        if not isinstance(value, str):
            raise ValueError(f"{name} {value!r} is not a text")
    number = each["partition"]
    if type(number) is not int:
        raise ValueError(f"partition {number!r} is not a whole number")
    named_id = topic_id(texts["topicId"]) if texts["topicId"] else ""
    return check_key(OffsetTxn(texts["appId"], texts["source"], TopicPartition(texts["topic"], named_id, number)))


def _offset(value: object) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"nextOffset {value!r} is not a whole number, zero or above")
    if value > MAX_LONG:
        raise ValueError(f"nextOffset {value} is too large: {MAX_LONG} is the largest number of 64 bits")
    return value

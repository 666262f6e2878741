"""Requests that are sent together: their responses take one round trip instead of one each.

Brokers answer the requests of one connection in their order, and those of several at the same time. A driver that ends
the transactions of a thousand tasks would otherwise wait a thousand times.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sparkonce.kafka.client.client import Client
from sparkonce.kafka.client.connection import BrokerConnection
from sparkonce.kafka.protocol import apis
from sparkonce.kafka.protocol.apis import ApiKey

MAX_AT_ONCE = 100
"""Most requests without a response: this many small responses fit into a socket without blocking the broker."""


@dataclass(frozen=True, slots=True)
class Question:
    """One request, and the connection that it goes to."""

    connection: BrokerConnection
    api_key: ApiKey
    version: int
    fields: Mapping[str, Any]


def send_pipelined(client: Client, questions: Sequence[Question]) -> list[Any]:
    """Send requests and return their decoded responses, in order; after a failure their connections are dropped."""
    answers = []
    for start in range(0, len(questions), MAX_AT_ONCE):
        some = questions[start : start + MAX_AT_ONCE]
        try:
            for each in some:
                request = apis.request(each.api_key, each.version, **each.fields)
                each.connection.send(each.api_key, each.version, apis.encode_request(request, each.version))
            for each in some:
                body = each.connection.receive(bytearray())
                answers.append(apis.decode_response(each.api_key, each.version, body))
        except BaseException:  # in any case, responses may still be in flight
            for address in {each.connection.address for each in some}:
                client.drop(address)
            raise
    return answers

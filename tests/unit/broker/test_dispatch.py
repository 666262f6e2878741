"""The table of handlers names what is there."""

from __future__ import annotations

import inspect

import pytest

from sparkonce.broker_lite.handlers.dispatch import handler_of
from sparkonce.broker_lite.protocol.apis import APIS


@pytest.mark.parametrize("api_key", APIS)
def test_every_api_has_a_handler(api_key: int) -> None:
    assert len(inspect.signature(handler_of(api_key)).parameters) == 2, "the broker and the request"
    assert handler_of(api_key) is handler_of(api_key)

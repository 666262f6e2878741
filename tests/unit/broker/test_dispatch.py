"""The table of handlers names what is there."""

from __future__ import annotations

import inspect
from pathlib import Path

from sparkonce.broker_lite import handlers
from sparkonce.broker_lite.dispatch import HANDLERS, handler_of
from sparkonce.kafka.protocol.apis import APIS
from tests.cases import each_case


@each_case("api_key", APIS)
def test_every_api_has_a_handler(api_key: int) -> None:
    assert len(inspect.signature(handler_of(api_key)).parameters) == 2, "the broker and the request"
    assert handler_of(api_key) is handler_of(api_key)


def test_the_folder_of_handlers_has_one_file_for_each_api_and_nothing_else() -> None:
    files = {path.stem for path in Path(handlers.__path__[0]).glob("*.py")} - {"__init__"}
    assert sorted(handler_of(key).__module__.rpartition(".")[2] for key in HANDLERS) == sorted(files)

"""The first commit of a new table. No I/O."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from sparkonce.offset_store.locations import Location
from sparkonce.offset_store.log.actions import Action
from sparkonce.offset_store.log.protocol_changes import lowest_protocol, to_action

CREATE = "CREATE TABLE"
_UNFINISHED = re.compile(r"\..*|.*\.tmp|.*#\d+")
"""What a writer leaves that crashed while it put the first commit: ours or delta-spark, or delta-rs."""


@dataclass(frozen=True, slots=True)
class NewTable:
    """An empty table that is to be created."""

    schema_json: str
    partition_columns: Sequence[str] = ()
    name: str | None = None
    description: str | None = None

    def actions(self, location: Location, attempt_id: str, now_ms: int, engine: str) -> list[tuple[str, Action]]:
        """Return its version 0, of the lowest protocol that its columns need."""
        protocol, metadata = to_action(lowest_protocol(self.schema_json)), self._metadata(now_ms)
        parameters = {
            "mode": "ErrorIfExists",
            "location": f"{PurePath(location.text).as_uri() if location.is_local else location}/",
            "protocol": _text(protocol),
            "metadata": _text(metadata),
        }
        info = {
            "timestamp": now_ms,
            "operation": CREATE,
            "operationParameters": parameters,
            "isBlindAppend": True,
            "engineInfo": engine,
            "txnId": attempt_id,
        }
        return [("commitInfo", info), ("protocol", protocol), ("metaData", metadata)]

    def _metadata(self, now_ms: int) -> dict[str, Any]:
        named = {"name": self.name, "description": self.description}
        return {
            "id": str(uuid.uuid4()),
            **{key: value for key, value in named.items() if value is not None},
            "format": {"provider": "parquet", "options": {}},
            "schemaString": self.schema_json,
            "partitionColumns": list(self.partition_columns),
            "configuration": {},
            "createdTime": now_ms,
        }


def left_over(names: Iterable[str]) -> list[str]:
    """Return, of the names in the folder of a log without versions, those that no new table may be put beside."""
    return [name for name in names if not _UNFINISHED.fullmatch(name)]


def _text(action: Action) -> str:
    return json.dumps(action, separators=(",", ":"))

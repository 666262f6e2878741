"""What other programs do to the table: each commit is made at once, from the newest version, as the protocol says."""

from __future__ import annotations

import json
from typing import Any

from lab.log.judge import ROW_IDS, Table
from lab.log.store import World

Json = dict[str, Any]


class Others:
    """Delta-spark, and whoever drops the table."""

    def __init__(self, world: World, features: list[str], properties: dict[str, str]) -> None:
        """Act in a world whose tables have these features and properties."""
        self.world, self.rng = world, world.rng
        self.features, self.properties = features, properties
        self.tables = 0

    @property
    def table(self) -> Table:
        """The newest version."""
        return self.world.judge.table

    def create(self) -> None:
        """Make the table."""
        self.tables += 1
        metadata = {
            "id": f"table-{self.tables}",
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps({"type": "struct", "fields": [], "generation": 0}),
            "partitionColumns": [],
            "configuration": self.properties,
            "createdTime": 1,
        }
        protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": self.features}
        self.commit("CREATE TABLE", ("protocol", protocol), ("metaData", metadata))

    def act(self) -> None:
        """Make one commit of a kind that the seed chooses."""
        self.rng.choice((self.append, self.append, self.optimize, self.restore, self.alter, self.upgrade, self.txn))()

    def append(self) -> None:
        """Add rows of nobody's."""
        stats = json.dumps({"numRecords": self.rng.randrange(1, 9)})
        self.commit("WRITE", self._add(stats), blind=True)

    def optimize(self) -> None:
        """Merge two files of one application, without a change of rows."""
        adds = list(self.table.adds.values())
        if len(adds) > 1:
            merged = self.rng.sample(adds, 2)
            rows = sum(json.loads(add["stats"])["numRecords"] for add in merged)
            removed = [self._remove(add, data_change=False) for add in merged]
            self.commit("OPTIMIZE", *removed, self._add(json.dumps({"numRecords": rows}), data_change=False))

    def restore(self) -> None:
        """Take the files of the newest commits out."""
        adds = list(self.table.adds.values())
        removed = adds[len(adds) - self.rng.randrange(len(adds) + 1) :]
        to = max(self.table.version - 1 - len(removed), 0)
        self.commit("RESTORE", *(self._remove(add) for add in removed), parameters={"version": to})

    def alter(self) -> None:
        """Change the schema."""
        schema = {"type": "struct", "fields": [], "generation": self.table.generation + 1}
        self.commit("CHANGE COLUMN", ("metaData", self.table.metadata | {"schemaString": json.dumps(schema)}))

    def upgrade(self) -> None:
        """Add a feature to the protocol: in one of two cases one that writers must refuse."""
        feature = self.rng.choice(("future", "appendOnly"))
        if feature not in self.table.features:
            features = [*self.table.features, feature]
            self.commit("UPGRADE PROTOCOL", ("protocol", self.table.protocol | {"writerFeatures": features}))

    def txn(self) -> None:
        """Write a transaction identifier of another program."""
        version = self.table.txns.get("other", 0) + 1
        self.commit("STREAMING UPDATE", ("txn", {"appId": "other", "version": version}), self._add('{"numRecords":1}'))

    def drop_and_create(self, least: int) -> None:
        """Drop the table, and make another at the same place, whose version soon is at least this."""
        self.world.drop()
        self.create()
        while self.table.version < least:
            self.append()

    def commit(
        self, operation: str, *actions: tuple[str, Json], blind: bool = False, parameters: Json | None = None
    ) -> None:
        """Put a commit."""
        world, version = self.world, self.table.version + 1
        world.now_ms += 1
        info: Json = {
            "timestamp": world.now_ms,
            "operation": operation,
            "engineInfo": "another",
            "isBlindAppend": blind,
        }
        if self.properties.get("delta.enableInCommitTimestamps") == "true":
            ahead = self.rng.choice((0, 0, 30_000))  # their clock
            info = {"inCommitTimestamp": max(world.now_ms + ahead, self.table.timestamp_ms + 1), **info}
        found = [("commitInfo", info | {"operationParameters": parameters or {}}), *actions]
        rows = [json.loads(each["stats"])["numRecords"] for kind, each in actions if kind == "add"]
        if rows and "rowTracking" in self.features:
            mark = json.dumps({"rowIdHighWaterMark": self.table.high_water_mark + sum(rows)})
            found.append(("domainMetadata", {"domain": ROW_IDS, "configuration": mark, "removed": False}))
        lines = (json.dumps({kind: action}) + "\n" for kind, action in found)
        world.judge.note(operation, str(version))
        assert world.land(f"{version:020d}.json", "".join(lines).encode())

    def _add(self, stats: str, *, data_change: bool = True) -> tuple[str, Json]:
        add: Json = {"path": self.world.new_name(), "partitionValues": {}, "size": 1, "modificationTime": 1}
        if "rowTracking" in self.features:
            version = self.table.version + 1
            add |= {"baseRowId": self.table.high_water_mark + 1, "defaultRowCommitVersion": version}
        return "add", add | {"dataChange": data_change, "stats": stats}

    def _remove(self, add: Json, *, data_change: bool = True) -> tuple[str, Json]:
        kept = {each: add[each] for each in ("path", "partitionValues", "size", "baseRowId") if each in add}
        return "remove", kept | {"deletionTimestamp": self.world.now_ms, "dataChange": data_change}

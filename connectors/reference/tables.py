"""The reference of all options, from their declarations: what `sparkonce options` prints and docs/options_*.md hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from sparkonce.connectors.delta_sink.options import OPTIONS as DELTA_OPTIONS
from sparkonce.connectors.kafka_sink.options import OPTIONS as SINK_OPTIONS
from sparkonce.connectors.kafka_source.options import OPTIONS as SOURCE_OPTIONS
from sparkonce.kafka.client.producer_settings import PRODUCER
from sparkonce.kafka.client.settings import READER
from sparkonce.options import KAFKA_PREFIX, STORAGE_PREFIX, SettingTable, nearest
from sparkonce.settings import Kind, Setting

WITHOUT_EFFECT = "Accepted, without effect"
REFUSED = "Refused"
STORAGE = Setting(
    f"{STORAGE_PREFIX}*",
    Kind.PASSWORD,
    documentation="for the store of tables and checkpoint, by delta-rs's names: `storage.AWS_REGION`, "
    "`storage.AWS_ENDPOINT_URL`, …",
    value="text",
    group="Object stores",
)


@dataclass(frozen=True, slots=True)
class Reference:
    """One use of a format, and all its options."""

    name: str
    """As the command line has it."""
    title: str
    use: str
    options: SettingTable
    settings: SettingTable | None
    """The table of ``kafka.*``; None: those are the other two's."""
    note: str = ""

    @property
    def page(self) -> str:
        """The name of its page in docs/."""
        return f"options_{self.name.replace('-', '_')}.md"

    def entries(self) -> list[Setting]:
        """Return all names, in the order of the declarations; those of Kafka's settings with their prefix."""
        found = list(self.options.settings.values())
        if STORAGE.name in self.options.passed_through:
            found.append(STORAGE)
        return [*found, *_kafkas(self.settings)] if self.settings is not None else found

    def find(self, name: str) -> Setting | None:
        """Find a name in any case; a setting of Kafka's also without its prefix."""
        found = {entry.name.lower(): entry for entry in self.entries()}
        for wanted in (name.lower(), KAFKA_PREFIX + name.lower()):
            beginnings = (key for key in found if key.endswith("*") and wanted.startswith(key[:-1]))
            known = wanted if wanted in found else next(beginnings, None)
            if known is not None:
                return found[known]
        return None

    def nearest(self, name: str) -> str | None:
        """Return the name most similar to ``name``."""
        names = [entry.name for entry in self.entries()]
        short = {each.removeprefix(KAFKA_PREFIX): each for each in names}
        return nearest(name, names) or short.get(nearest(name, short) or "")


def is_used(entry: Setting) -> bool:
    """Whether it is neither rejected nor without effect."""
    return entry.group not in (WITHOUT_EFFECT, REFUSED)


def _kafkas(table: SettingTable) -> list[Setting]:
    def heading(group: str) -> str:
        return f"Kafka: {group if group.startswith('TLS') else group[:1].lower() + group[1:]}"

    settings = [replace(each, group=heading(each.group)) for each in table.settings.values()]
    for group, names in ((WITHOUT_EFFECT, table.without_effect), (REFUSED, table.refused)):
        settings += [Setting(name, documentation=why, group=group) for name, why in names.items()]
    return [replace(each, name=table.prefix + each.name) for each in settings]


REFERENCES: Mapping[str, Reference] = {
    reference.name: reference
    for reference in (
        Reference(
            "source",
            "Options of the Kafka source",
            '`spark.readStream.format("kafka_once")` and `spark.read.format("kafka_once")`',
            SOURCE_OPTIONS,
            READER,
        ),
        Reference(
            "kafka-sink",
            "Options of the Kafka sink",
            '`writeStream.format("kafka_once")` and `df.write.format("kafka_once")`',
            SINK_OPTIONS,
            PRODUCER,
        ),
        Reference(
            "delta-sink",
            "Options of the Delta sink",
            '`writeStream.format("delta_once")`',
            DELTA_OPTIONS,
            None,
            "`kafka.*` are for `offsetStore=group:<id>`, which takes those of the [source](options_source.md), and "
            "for `deadLetters=topic:<name>`, which takes those of the [Kafka sink](options_kafka_sink.md).",
        ),
    )
}
"""By the name that the command line takes."""

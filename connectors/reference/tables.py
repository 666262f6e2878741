"""The reference of all options, from their declarations: what `sparkonce options` prints and docs/options_*.md hold.

One `Entry` has everything about one name: an option of a format, or a setting of Kafka's under ``kafka.``, supported,
without effect or rejected.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sparkonce.connectors.delta_sink.options import OPTIONS as DELTA_OPTIONS
from sparkonce.connectors.kafka_client.settings import READER
from sparkonce.connectors.kafka_sink.options import OPTIONS as SINK_OPTIONS
from sparkonce.connectors.kafka_sink.settings import PRODUCER
from sparkonce.connectors.kafka_source.options import OPTIONS as SOURCE_OPTIONS
from sparkonce.connectors.settings.options import STORAGE_PREFIX, Option, OptionSet, Scope, nearest
from sparkonce.connectors.settings.setting_table import PREFIX, SettingTable

WITHOUT_EFFECT = "Accepted, without effect"
REFUSED = "Refused"
STORAGE = Option(
    f"{STORAGE_PREFIX}*",
    "handed to delta-rs, for the store that a table lies in: `storage.AWS_REGION`, `storage.AWS_ENDPOINT_URL`, …",
    value="text",
    secret=True,
    group="Object stores",
)


@dataclass(frozen=True, slots=True)
class Entry:
    """The reference of one name."""

    name: str
    doc: str
    group: str
    value: str = ""
    words: tuple[str, ...] = ()
    default: str = ""
    scope: Scope = Scope.BOTH
    spark: bool = False
    secret: bool = False

    @property
    def taken(self) -> bool:
        """Whether it is honoured."""
        return self.group not in (WITHOUT_EFFECT, REFUSED)


@dataclass(frozen=True, slots=True)
class Reference:
    """One use of a format, and all that may be given to it."""

    name: str
    """As the command line has it."""
    title: str
    use: str
    options: OptionSet
    settings: SettingTable | None
    """The table of ``kafka.*``; None: those are the other two's."""
    note: str = ""

    @property
    def page(self) -> str:
        """The name of its page in docs/."""
        return f"options_{self.name.replace('-', '_')}.md"

    def entries(self) -> list[Entry]:
        """Return all names, in the order of the declarations."""
        found = [_entry(option) for option in self.options.options]
        if STORAGE_PREFIX in self.options.passed_through:
            found.append(_entry(STORAGE))
        return [*found, *_settings(self.settings)] if self.settings is not None else found

    def find(self, name: str) -> Entry | None:
        """Find a name in any case; a setting of Kafka's also without its prefix."""
        found = {entry.name.lower(): entry for entry in self.entries()}
        for wanted in (name.lower(), PREFIX + name.lower()):
            beginnings = (key for key in found if key.endswith("*") and wanted.startswith(key[:-1]))
            known = wanted if wanted in found else next(beginnings, None)
            if known is not None:
                return found[known]
        return None

    def nearest(self, name: str) -> str | None:
        """Return the name that is most like ``name``."""
        names = {entry.name.lower(): entry.name for entry in self.entries()}
        near = nearest(name.lower(), names) or nearest(PREFIX + name.lower(), names)
        return names[near] if near else None


def _entry(option: Option, prefix: str = "") -> Entry:
    heading = f"Kafka: {option.group[:1].lower()}{option.group[1:]}" if prefix else option.group
    if option.group.startswith("TLS"):
        heading = f"Kafka: {option.group}"
    return Entry(
        prefix + option.name,
        option.doc,
        heading,
        option.form,
        option.words,
        option.shown_default,
        option.scope,
        option.spark,
        option.secret,
    )


def _settings(table: SettingTable) -> Iterator[Entry]:
    for setting in table.honoured.values():
        yield _entry(setting, PREFIX)
    for name, why in table.without_effect.items():
        yield Entry(PREFIX + name, why, WITHOUT_EFFECT)
    for name, instead in table.refused.items():
        yield Entry(PREFIX + name, instead, REFUSED)


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

"""docs/broker_settings.md: every setting of the broker."""

from __future__ import annotations

import textwrap

from sparkonce.broker_lite.settings_page import default_of, sections
from sparkonce.broker_lite.unserved_settings import HARMLESS
from sparkonce.settings import Kind, Setting

_NUMBERS = (Kind.INT, Kind.SHORT, Kind.LONG, Kind.DOUBLE)

_HEAD = """\
# Settings of the broker

<!-- Generated from the code: python -m lab.pages . -->

Names, types and defaults are Apache Kafka 4.3's; where a default differs, Kafka's stands beside it. Give settings to
`EmbeddedBroker(config={...})`, in a properties file (`sparkonce broker --config FILE`), or one by one
(`--set NAME=VALUE`). `sparkonce broker --help-settings` prints this list.

A name that is not here is an error, and the error names the nearest one. A properties file that was written for Kafka
may hold settings that make no difference here (the last section) or that no Kafka has: they are left out, and the log
names them.
The listeners that `controller.listener.names` names are left out with it.
All other settings of Kafka's are errors too, since whoever sets them counts on them.

*May change* says whether a client may change a setting while the broker runs (`kafka-configs`, AlterConfigs,
IncrementalAlterConfigs): `read-only` needs a restart, `cluster-wide` may be changed for this broker or for all,
`per-broker` for this broker. A change takes effect at once and survives a restart: what is changed for brokers and
groups is kept in `dynamic-settings.json` in the data directory, topics' settings in `topics.json`.
"""


def markdown() -> str:
    """Return the page."""
    parts = [_HEAD]
    for title, (note, settings) in sections().items():
        broker = title not in ("Topics", "Groups")
        last = "may change" if broker else "follows the broker's"
        parts.append(f"\n## {title}\n\n" + (f"{note}\n\n" if note else ""))
        parts.append(f"| setting | type | default | values | {last} | what it is |\n|---|---|---|---|---|---|\n")
        parts += [_row(setting, broker) for setting in settings]
    parts.append("\n## Settings of Kafka's that a file may hold, without effect\n\n")
    parts.append(textwrap.fill(", ".join(f"`{name}`" for name in sorted(HARMLESS)), 120, break_on_hyphens=False) + "\n")
    return "".join(parts)


def _row(setting: Setting, broker: bool) -> str:
    last = setting.update.value if broker else ", ".join(f"`{name}`" for name, _ in setting.broker)
    default = default_of(setting)
    cells = (
        f"`{setting.name}`",
        setting.shown_kind.name.lower(),
        default,
        _values(setting),
        last,
        setting.documentation,
    )
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def _values(setting: Setting) -> str:
    if setting.choices:
        return ", ".join(each or "empty" for each in setting.choices)
    if setting.kind not in _NUMBERS:
        return ""
    least, most = setting.bounds
    ends = [f"{least:g} or more" if setting.least is not None else ""] if setting.most is None else []
    if setting.most is not None:
        ends = [f"{least:g} to {most:g}" if setting.least is not None else f"up to {most:g}"]
    return " or ".join([end for end in ends if end] + [str(number) for number in setting.allowed])

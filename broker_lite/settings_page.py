"""Every setting as text: for `--help-settings`, and for docs/broker_settings.md (`sparkonce options --write .`)."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping

from sparkonce.broker_lite.config import BrokerConfig, broker_log_settings
from sparkonce.broker_lite.log.config import topic_settings
from sparkonce.broker_lite.node.dynamic_settings import group_settings
from sparkonce.broker_lite.security.settings import SecurityConfig
from sparkonce.broker_lite.unserved_settings import HARMLESS
from sparkonce.settings import INT_MAX, LONG_MAX, Kind, Setting, settings_of

_NUMBERS = (Kind.INT, Kind.SHORT, Kind.LONG, Kind.DOUBLE)
_NAMED = {INT_MAX: "the largest 32-bit number", LONG_MAX: "the largest 64-bit number"}

_HEAD = """\
# Settings of the broker

<!-- Generated from the code: sparkonce options --write . -->

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


def sections() -> Mapping[str, tuple[str, Iterable[Setting]]]:
    """Return the declarations by section, each with a line about it."""
    return {
        "Broker": ("", settings_of(BrokerConfig).values()),
        "Listeners, TLS and SASL": (
            "`listener.name.<listener in lower case>.<setting>` is for one listener; so may be given what begins with "
            "`ssl.`, and `sasl.enabled.mechanisms`, `sasl.server.max.receive.size` and `connections.max.reauth.ms`. "
            "Users are in `listener.name.<listener>.<mechanism>.sasl.jaas.config`: see [security](security.md).",
            settings_of(SecurityConfig).values(),
        ),
        "Defaults of topics": (
            "Where a setting has no default, the next one that says the same in another unit counts.",
            broker_log_settings().values(),
        ),
        "Topics": ("Given when a topic is made, or changed later.", topic_settings().values()),
        "Groups": ("Of single groups with the consumer protocol (KIP-848).", group_settings().values()),
    }


def markdown() -> str:
    """Return docs/broker_settings.md."""
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


def plain() -> str:
    """Return what `--help-settings` prints."""
    lines = []
    for title, (_, settings) in sections().items():
        lines.append(f"{title}:")
        for setting in settings:
            lines.append(f"  {setting.name} ({_default(setting)})")
            lines += textwrap.wrap(setting.documentation, 100, initial_indent="      ", subsequent_indent="      ")
        lines.append("")
    return "\n".join(lines)


def _row(setting: Setting, broker: bool) -> str:
    last = setting.update.value if broker else ", ".join(f"`{name}`" for name, _ in setting.broker)
    default = _default(setting)
    cells = (
        f"`{setting.name}`",
        setting.shown_kind.name.lower(),
        default,
        _values(setting),
        last,
        setting.documentation,
    )
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def _default(setting: Setting) -> str:
    number = setting.default if isinstance(setting.default, int) and not isinstance(setting.default, bool) else None
    if number in _NAMED:
        default = _NAMED[number]
    elif setting.default is None:
        default = "none"
    else:
        default = setting.text(setting.default) or "empty"
    if setting.kafka_default is not None:
        kafka = setting.kafka_default
        default += f" (Kafka: {_NAMED.get(int(kafka), kafka) if kafka.isdigit() else kafka or 'none'})"
    return default


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

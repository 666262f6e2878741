"""Every setting as text: for `--help-settings`, and by section for docs/broker_settings.md."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping

from sparkonce.broker_lite.config import BrokerConfig, broker_log_settings
from sparkonce.broker_lite.log.config import topic_settings
from sparkonce.broker_lite.node.dynamic_settings import group_settings
from sparkonce.broker_lite.security.settings import SecurityConfig
from sparkonce.settings import INT_MAX, LONG_MAX, Setting, settings_of

_NAMED = {INT_MAX: "the largest 32-bit number", LONG_MAX: "the largest 64-bit number"}


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


def plain() -> str:
    """Return what `--help-settings` prints."""
    lines = []
    for title, (_, settings) in sections().items():
        lines.append(f"{title}:")
        for setting in settings:
            lines.append(f"  {setting.name} ({default_of(setting)})")
            lines += textwrap.wrap(setting.documentation, 100, initial_indent="      ", subsequent_indent="      ")
        lines.append("")
    return "\n".join(lines)


def default_of(setting: Setting) -> str:
    """Return the default in words, and Kafka's where it differs."""
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

"""Hints for an unknown option, from all formats: where it belongs, or which one is similar.

The formats read their options with `checked`, which imports the options of all formats only to build an error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from sparkonce.options import KAFKA_PREFIX, OptionError, SettingTable, UnknownOptionError, nearest

T = TypeVar("T")
_WHOSE = {
    "source": "of the source: set it on readStream or read",
    "kafka-sink": 'of the Kafka sink, writeStream.format("kafka_once")',
    "delta-sink": 'of the Delta sink, writeStream.format("delta_once")',
}


def checked(read: Callable[[Mapping[str, str]], T], given: Mapping[str, str]) -> T:
    """Read options.

    Raises:
        OptionError: as ``read`` does; for an unknown name, with the hint that all formats have for it.
    """
    try:
        return read(given)
    except UnknownOptionError as error:
        table, name = error.table, error.name
        hint = _setting_hint(table, name) if table.prefix else _option_hint(table, name)
        raise OptionError(f"{table.format}: {hint}" if hint else str(error)) from None


def _option_hint(table: SettingTable, key: str) -> str | None:
    from sparkonce.connectors.reference.tables import REFERENCES  # imported lazily: it imports all formats

    kafkas = [reference.settings for reference in REFERENCES.values() if reference.settings is not None]
    lower, unknown = key.lower(), f"unknown option {key!r};"
    if any(lower in each.settings or lower in each.without_effect for each in kafkas):
        return f"{unknown} settings of Kafka's clients have a prefix here: use {KAFKA_PREFIX + lower!r}"
    whose = {
        name: _WHOSE[reference.name]
        for reference in reversed(list(REFERENCES.values()))  # the first one that has a name wins
        if reference.name != table.reference
        for name in reference.options.settings
    }
    name = nearest(key, whose)
    if name is not None and name.lower() == lower:
        return f"option {name} is {whose[name]}; leave it out here"
    own = table.nearest(key)
    if own is not None and (name is None or nearest(key, (own, name)) == own):
        return None
    if name is not None:
        return f"{unknown} did you mean {name!r}? That is {whose[name]}"
    near = (REFERENCES[table.reference].settings or kafkas[0]).nearest(key)
    return near and f"{unknown} did you mean {KAFKA_PREFIX + near!r}?"


def _setting_hint(table: SettingTable, name: str) -> str | None:
    from sparkonce.connectors.reference.tables import REFERENCES  # imported lazily: it imports all formats

    for reference in REFERENCES.values():
        for option in reference.options.settings:
            if option.lower() == name:
                unknown = f"unknown option {table.prefix + name!r};"
                return f"{unknown} without {table.prefix} it is an option, {option}, {_WHOSE[reference.name]}"
    for reference in REFERENCES.values():
        others = reference.settings
        if others is not None and others is not table and name in others.settings:
            return f"option {table.prefix}{name} is {_WHOSE[reference.name]}; leave it out here"
    return None

"""Hints for the name of an option that a format does not know: whose it is, or which one is similar.

All formats and all of Kafka's settings are searched, which costs their imports. So `connectors.settings`
imports this module only to make an error.
"""

from __future__ import annotations

from sparkonce.connectors.reference.tables import REFERENCES, Reference
from sparkonce.connectors.settings.options import OptionSet, nearest
from sparkonce.connectors.settings.setting_table import PREFIX, SettingTable

_WHOSE = {
    "source": "of the source: set it on readStream or read",
    "kafka-sink": 'of the Kafka sink, writeStream.format("kafka_once")',
    "delta-sink": 'of the Delta sink, writeStream.format("delta_once")',
}


def option_hint(options: OptionSet, key: str) -> str:
    """Return the hint for ``key``, which is neither an option of these nor has a hint of theirs."""
    lower = key.lower()
    for reference in REFERENCES.values():
        if reference.settings is not None and _is_taken(reference.settings, lower):
            return f"unknown option {key!r}; settings of Kafka's clients have a prefix here: say {PREFIX + lower!r}"
    of_others = _of_others(options)
    if lower in of_others:
        name, whose = of_others[lower]
        return f"option {name} is {whose}; leave it out here"
    own = {option.name.lower(): option.name for option in options.options}
    near = nearest(lower, own)
    if near is not None:
        return f"unknown option {key!r}; did you mean {own[near]!r}?"
    near = nearest(lower, of_others)
    if near is not None:
        name, whose = of_others[near]
        return f"unknown option {key!r}; did you mean {name!r}? That is {whose}"
    near = _nearest_setting(options, lower)
    if near is not None:
        return f"unknown option {key!r}; did you mean {near!r}?"
    return f"unknown option {key!r}; `sparkonce options {options.reference}` lists those that there are"


def setting_hint(table: SettingTable, name: str) -> str:
    """Return the hint for the setting ``kafka.<name>``, which the table does not have."""
    for reference in REFERENCES.values():
        for option in reference.options.options:
            if option.name.lower() == name:
                return f"without {PREFIX} it is an option, {option.name}, {_WHOSE[reference.name]}"
    near = nearest(name, [*table.honoured, *table.without_effect])
    if near is not None:
        return f"did you mean {PREFIX + near!r}?"
    return f"`sparkonce options {table.reference} {PREFIX}` lists those that there are"


def _is_taken(table: SettingTable, name: str) -> bool:
    return name in table.honoured or name in table.without_effect


def _of_others(options: OptionSet) -> dict[str, tuple[str, str]]:
    """Return the declared name, and whose it is, of each option of other formats, by its name in lower case."""
    others = [reference for reference in REFERENCES.values() if reference.name != options.reference]
    return {
        option.name.lower(): (option.name, _WHOSE[reference.name])
        for reference in reversed(others)  # the first one that has a name wins
        for option in reference.options.options
    }


def _nearest_setting(options: OptionSet, name: str) -> str | None:
    own: Reference = REFERENCES[options.reference]
    table = own.settings or REFERENCES["source"].settings
    assert table is not None, "the source has a table of settings"
    near = nearest(name, [*table.honoured, *table.without_effect])
    return PREFIX + near if near is not None else None

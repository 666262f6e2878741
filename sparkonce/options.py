"""The options of one use of a format, or the settings of one kind of Kafka client: names checked, values read.

`sparkonce.settings` declares each as a field of the dataclass that holds the values. Nothing is dropped
silently: a name is used, known to have no effect here (with the reason), or an error that names what to use instead.
Spark passes options with their keys in lower case (the source keeps the user's spelling in some versions), so
names are compared without case and shown as declared.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sparkonce.settings import Setting, SettingError

KAFKA_FORMAT = "kafka_once"
KAFKA_PREFIX = "kafka."
"""The prefix of options that are settings of Kafka's clients."""
SOURCE_PREFIX = "source."
"""The prefix of a sink's options that are secrets of the source, if it reads in place of the source."""
SQL_DOC = (
    "with handOver=ranges on the source: what makes rows of its records, in the sink's tasks: one stateless SELECT "
    "over the table `records`, whose columns are those of the source (docs/direct_sql.md)"
)
"""The documentation of the option ``sql`` of all sinks."""
STORAGE_PREFIX = "storage."
"""The prefix of options for the store of a table, which have delta-rs's names."""


class OptionError(ValueError):
    """An option is unknown, missing, in conflict with another, or has an invalid value."""


class UnknownOptionError(OptionError):
    """A name is not in ``table``; `connectors.reference.hints` looks for it in the others."""

    def __init__(self, table: SettingTable, name: str, hint: str) -> None:
        super().__init__(f"{table.format}: unknown option {table.prefix + name!r}; {hint}")
        self.table, self.name = table, name


@dataclass(frozen=True, slots=True)
class SettingTable:
    """All accepted names. A name that ends in ``*`` matches all names with that prefix."""

    format: str
    settings: Mapping[str, Setting]
    """The settings in use, by name."""
    reference: str
    """The name of these settings in `sparkonce options`."""
    passed_through: Sequence[str] = ()
    """Names that are read elsewhere."""
    prefix: str = ""
    """The prefix of the names, which are stored without it."""
    without_effect: Mapping[str, str] = field(default_factory=dict)
    """Names without effect, with the reason."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Rejected names, with what to use instead."""
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    """Names of other settings, with the hint for the error; they are not in the reference."""

    def read(self, given: Mapping[str, str]) -> dict[str, Any]:
        """Check the names in ``given``; return all settings by field. Raises OptionError as `check` and `values`."""
        self.check(given)
        return self.values(given, self.settings)

    def check(self, given: Iterable[str]) -> None:
        """Check names. Raises OptionError if one is rejected, elsewhere or unknown, with what to use."""
        known = {name.lower() for name in (*self.settings, *self.without_effect)}
        for name in given:
            if name.lower() in known or _matching(name, self.passed_through):
                continue
            instead = self.instead_of(name)
            if instead is not None:
                raise OptionError(f"{self.format}: option {self.prefix}{instead}")
            near = self.nearest(name)
            all_names = f"{self.reference} {self.prefix}".strip()
            hint = f"did you mean {self.prefix + near!r}?" if near else f"`sparkonce options {all_names}` lists all"
            raise UnknownOptionError(self, name, hint)

    def instead_of(self, name: str) -> str | None:
        """Return the name of an unused setting, with the hint what to do; None if there is no hint."""
        hints = {**self.elsewhere, **{each: f"is not supported: {why}" for each, why in self.refused.items()}}
        found = None if _matching(name, [*self.settings, *self.without_effect]) else _matching(name, hints)
        return found and f"{name if found.endswith('*') else found} {hints[found]}"

    def nearest(self, name: str) -> str | None:
        """Return the name most similar to ``name``, if any is similar."""
        return nearest(name, [*self.settings, *self.without_effect])

    def values(self, given: Mapping[str, str], settings: Mapping[str, Setting]) -> dict[str, Any]:
        """Read settings whose names have been checked; return them by their fields, with defaults.

        Raises:
            OptionError: if one is missing or cannot be read. Secrets are not shown.
        """
        texts = {name.lower(): text for name, text in given.items()}
        values = {}
        for name, setting in settings.items():
            text = texts.get(name.lower())
            if text is None and setting.required:
                raise OptionError(f"{self.format}: option {self.prefix}{name} is required: {setting.documentation}")
            try:
                values[setting.field] = setting.default if text is None else setting.read(text)
            except SettingError as error:
                raise OptionError(f"{self.format}: option {self.prefix}{error}") from None
        return values


def _matching(name: str, patterns: Iterable[str]) -> str | None:
    """Return the first of ``patterns`` that ``name`` equals or has as prefix."""
    lower = name.lower()
    for pattern in patterns:
        if lower == pattern.lower() or (pattern.endswith("*") and lower.startswith(pattern[:-1].lower())):
            return pattern
    return None


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the one of ``known`` most similar to ``name`` in any case, if any is similar."""
    names = {each.lower(): each for each in known}
    found = difflib.get_close_matches(name.lower(), names, n=1, cutoff=0.6)
    return names[found[0]] if found else None


def storage_options(given: Mapping[str, str]) -> dict[str, str]:
    """Return the options of a store among ``given``, in the user's spelling. They may contain secrets: never shown."""
    return {key[len(STORAGE_PREFIX) :]: text for key, text in given.items() if key.lower().startswith(STORAGE_PREFIX)}

"""A file in TOML that describes an ingestion; its entries are those of `connectors.ingest.settings`.

A value may be ``{ env = "NAME" }``: the value of that environment variable, which is never shown. Names with dots may
be written with or without quotes: TOML reads ``bootstrap.servers = …`` as a table within a table, which is put together
again here.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from sparkonce.connectors.ingest.settings import IngestSettings, IngestTable
from sparkonce.offset_store.secrets import without_secrets
from sparkonce.options import OptionError

ENV = "env"
TABLES, SPARK = "tables", "spark"
_SECTIONS = ("kafka", "storage", "schema_registry", SPARK)
_SECTIONS_OF_TABLES = ("source", "sink")
_DURATION = re.compile(r"(?i)\s*(\d+)\s*(s|seconds?|m|min|minutes?|h|hours?)\s*")
_SECONDS = {"s": 1, "m": 60, "h": 3600}


@dataclass(frozen=True, slots=True)
class Configuration:
    """What the file says."""

    settings: IngestSettings
    spark: Mapping[str, str] = field(repr=False)
    """Settings of Spark, by their own names."""
    secrets: Mapping[str, str] = field(repr=False)
    """The environment variables that were used, and their values."""

    def without_secrets(self, text: str) -> str:
        """Return a text in which no value of such a variable stands."""
        return _hidden(text, self.secrets)


def read_configuration(path: Path, environment: Mapping[str, str]) -> Configuration:
    """Read a file.

    Raises:
        OptionError: if it cannot be read, an entry is missing, unknown or of another type, or entries do not go
            together; the message names the file and the entry.
    """
    try:
        document = tomllib.loads(path.read_text())
    except OSError as error:
        raise OptionError(f"cannot read the configuration {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise OptionError(f"{path} is not TOML: {error}") from error
    reader = _Reader(environment)
    try:
        return reader.read(document)
    except OptionError as error:
        raise OptionError(f"{path}: {_hidden(str(error), reader.used)}") from None


class _Reader:
    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self.used: dict[str, str] = {}

    def read(self, document: Mapping[str, Any]) -> Configuration:
        _check_names(document, (*_WHOLE, *_TABLE, *_SECTIONS, *_SECTIONS_OF_TABLES, TABLES), "")
        missing = next((name for name in ("app_id", "checkpoint", "kafka") if name not in document), None)
        if missing is not None:
            raise OptionError(f"entry {missing!r} is missing")
        tables = document.get(TABLES, [])
        if not isinstance(tables, list) or not all(isinstance(each, dict) for each in tables):
            raise OptionError(f"entry {TABLES!r} must be a list of tables: write [[{TABLES}]]")
        given = [self._table(each, f"[[{TABLES}]] number {number}: ") for number, each in enumerate(tables, 1)]
        whole = {
            setting: read(self._value(document[name], name), name)
            for name, (setting, read) in _WHOLE.items()
            if name in document
        }
        sections = {name: self._section(document.get(name, {}), name, "") for name in _SECTIONS}
        spark = sections.pop(SPARK)
        settings = IngestSettings.of(self._table(document, ""), given, **whole, **sections)
        return Configuration(settings, spark, self.used)

    def _table(self, document: Mapping[str, Any], where: str) -> IngestTable:
        if where:
            _check_names(document, (*_TABLE, *_SECTIONS_OF_TABLES), where)
        values: dict[str, Any] = {
            name: read(self._value(document[name], where + name), where + name)
            for name, read in _TABLE.items()
            if name in document
        }
        for name in _SECTIONS_OF_TABLES:
            values[name] = self._section(document.get(name, {}), name, where)
        return IngestTable(**values)

    def _value(self, value: Any, name: str) -> Any:
        """Return a value, from the environment if it says so."""
        if not isinstance(value, dict):
            return value
        variable = value.get(ENV)
        if len(value) != 1 or not isinstance(variable, str):
            raise OptionError(f'entry {name!r} must be a value, or {{ {ENV} = "NAME" }}')
        if variable not in self._environment:
            raise OptionError(f"entry {name!r}: the environment variable {variable} is not set")
        self.used[variable] = self._environment[variable]
        return self._environment[variable]

    def _section(self, section: Any, name: str, where: str) -> dict[str, str]:
        """Return names and values as text; a table within it is a name with dots."""
        if not isinstance(section, dict):
            raise OptionError(f"{where}entry {name!r} must be a section: write [{name}]")
        found: dict[str, str] = {}
        for key, value in section.items():
            if isinstance(value, dict) and not (len(value) == 1 and isinstance(value.get(ENV), str)):
                inner = self._section(value, f"{name}.{key}", where)
                found |= {f"{key}.{rest}": text for rest, text in inner.items()}
            else:
                found[key] = _text(self._value(value, f"{where}{name}.{key}"), f"{where}{name}.{key}")
        return found


def _check_names(document: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
    for name in document:
        if name in known:
            continue
        snake = re.sub("([A-Z])", r"_\1", name).lower()
        near = [snake] if snake in known else difflib.get_close_matches(name, known, n=1)
        if near:
            hint = f"did you mean {near[0]!r}?"
        elif name in (*_WHOLE, *_SECTIONS):
            hint = "it is for all tables: put it at the top of the file"
        else:
            hint = "known: " + ", ".join(known) + "; options of source and sink go into [source] and [sink]"
        raise OptionError(f"{where}unknown entry {name!r}; {hint}")


def _text(value: Any, name: str) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value)
    raise OptionError(f"entry {name!r} is no text and no number")


def _some_text(value: Any, name: str) -> str:
    text = _text(value, name)
    if not text.strip():
        raise OptionError(f"entry {name!r} is empty")
    return text


def _names(value: Any, name: str) -> list[str] | str:
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return value
    if isinstance(value, str):
        return value
    raise OptionError(f"entry {name!r} must be a text, or a list of texts")


def _flag(value: Any, name: str) -> bool:
    if not isinstance(value, bool):
        raise OptionError(f"entry {name!r} must be true or false")
    return value


def _whole_number(value: Any, name: str) -> int:
    if isinstance(value, str) and value.isdecimal():  # from the environment
        return int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise OptionError(f"entry {name!r} must be a whole number")
    return value


def _seconds(value: Any, name: str) -> float:
    found = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise OptionError(f"entry {name!r} must be a time such as '30 seconds' or '5 minutes'")
    return float(int(found[1]) * _SECONDS[found[2][0].lower()])


_Read = Callable[[Any, str], Any]
_WHOLE: dict[str, tuple[str, _Read]] = {
    "app_id": ("app_id", _some_text),
    "checkpoint": ("checkpoint", _some_text),
    "trigger": ("trigger", _some_text),
    "metrics_port": ("metrics_port", _whole_number),
    "metrics_address": ("metrics_address", _some_text),
    "topic_interval": ("topic_interval_s", _seconds),
    "stop_timeout": ("stop_timeout_s", _seconds),
}
"""Entries of the whole, the fields that they are, and how each is read."""
_OF_TYPE: dict[str, _Read] = {
    "topics": _names,
    "columns": _names,
    "partition_by": _names,
    "merge_schema": _flag,
    "direct": _flag,
    "compact_every": _whole_number,
}
_TABLE: dict[str, _Read] = {
    each.name: _OF_TYPE.get(each.name, _some_text)
    for each in fields(IngestTable)
    if each.name not in (*_SECTIONS_OF_TABLES, "transform")
}
"""Entries of a table."""


def _hidden(text: str, secrets: Mapping[str, str]) -> str:
    """Hide the values, whatever the names of the variables."""
    return without_secrets(text, {f"secret {name}": value for name, value in secrets.items()})

"""Declarations of settings, for the broker and the connectors: made once; everything else is derived from them.

Theory of operation: settings are the fields of a frozen dataclass that are created by one of the functions below
(`integer`, `text`, …), which store kind, bounds, choices and documentation in the field's metadata; other fields are
not settings. `settings_of` returns a class' declarations by the names that users write: Kafka's have dots where the
field has underscores, Spark's are in camel case, and `name` sets any other. `Setting.read` reads and checks values.
The pages of the docs, `--help-settings`, DescribeConfigs, `sparkonce options`, shell completion and the
typed options come from the declarations, too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from enum import Enum, IntEnum, StrEnum
from functools import cache
from types import MappingProxyType
from typing import Any

LONG_MAX = 2**63 - 1
INT_MAX = 2**31 - 1
REQUIRED: Any = MISSING
"""The default of a setting that is required."""
_WORD = re.compile(r"[A-Za-z0-9_.-]+")
_USER_INFO = re.compile(r"(?s).*[:/].*@")
_QUERY = re.compile(r"(://[^\s?,]*\?)[^\s,]*")
"""A possible user and password before a host's name, in one of several addresses."""


class SettingError(ValueError):
    """A value is invalid; the message names setting and value, for a password the setting only."""


class Kind(IntEnum):
    """Types, numbered as in DescribeConfigs (`DescribeConfigsResponse.ConfigType`)."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


_LARGEST = {Kind.SHORT: 2**15 - 1, Kind.INT: INT_MAX, Kind.LONG: LONG_MAX}


class Update(Enum):
    """When a broker's setting may change, in Kafka's terms."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


class Scope(StrEnum):
    """Which kind of query accepts an option."""

    BOTH = "both"
    STREAM = "streams"
    BATCH = "batches"


@dataclass(frozen=True, slots=True)
class Setting:
    """One declaration. `least` and `most` bound a number, `choices` a text or the items of a list."""

    name: str
    kind: Kind = Kind.STRING
    default: Any = None
    documentation: str = ""
    field: str = ""
    """The name of the dataclass' field."""
    required: bool = False
    least: float | None = None
    most: float | None = None
    choices: tuple[str, ...] = ()
    allowed: tuple[int, ...] = ()
    """Numbers outside the bounds that are valid all the same."""
    parse: Callable[[str], Any] | None = None
    """Converts a text from `choices` to the value; a ValueError says what it expects."""
    value: str = ""
    """The allowed values in a few words, if kind, bounds and choices do not describe them."""
    default_text: str = ""
    """The default in words, if it is not the text of `default`."""
    group: str = ""
    """The heading under which it is documented."""

    # Of the broker's settings.
    update: Update = Update.READ_ONLY
    kafka_default: str | None = None
    """Kafka's default as text, if it differs."""
    broker: tuple[tuple[str, int], ...] = ()
    """For a topic setting: the broker settings that are its default, the first one set wins, each with the factor for
    its number."""
    kafka_kind: Kind | None = None
    """The type that Kafka reports to clients, if it is not `kind`."""

    # Of the connectors' options.
    scope: Scope = Scope.BOTH
    spark: bool = False
    """Whether Spark's own connector has it, with this name and meaning."""

    @property
    def shown_kind(self) -> Kind:
        """The type that clients see."""
        return self.kafka_kind or self.kind

    @property
    def sensitive(self) -> bool:
        """Whether the value is hidden from clients, messages and logs."""
        return self.kind is Kind.PASSWORD

    @property
    def form(self) -> str:
        """The allowed values in a few words: ``true|false``, or ``whole number >= 1``."""
        if self.value or self.choices:
            return self.value or "|".join(self.choices)
        if self.kind is Kind.BOOLEAN:
            return "true|false"
        return self._numbers() if self.kind in _LARGEST or self.kind is Kind.DOUBLE else ""

    @property
    def words(self) -> tuple[str, ...]:
        """The values that are words, if there are several, for shell completion."""
        words = self.form.split("|")
        return tuple(filter(_WORD.fullmatch, words)) if len(words) > 1 else ()

    @property
    def shown_default(self) -> str:
        """The default as the user would write it, or its description; empty if there is none."""
        return "required" if self.required else self.default_text or self.text(self.default) or ""

    def read(self, value: object) -> Any:
        """Read a value: text as in a properties file, or already of the type. Raises SettingError if it is invalid."""
        if value is None:
            if self.default is None:
                return None
            raise SettingError(f"{self.name} needs a value")
        try:
            return self._read(value)
        except ValueError as error:
            if self.sensitive:
                raise SettingError(f"{self.name}: expected {self.form or 'another value'}") from None
            raise SettingError(f"{self.name}={_shown(value)!r}: {error}") from None

    def _read(self, value: object) -> Any:
        if self.kind is Kind.LIST:
            return self._list(value)
        if self.kind is Kind.BOOLEAN:
            word = str(value).strip().lower()
            if word not in ("true", "false"):
                raise ValueError("expected true or false")
            return word == "true"
        if self.kind in (Kind.STRING, Kind.CLASS, Kind.PASSWORD):
            text = str(value)
            if self.choices and text not in self.choices:
                empty = "empty or " if "" in self.choices else "one of "
                raise ValueError(f"expected {empty}{', '.join(filter(None, self.choices))}")
            return text if self.parse is None else self.parse(text)
        return self._number(value)

    def _list(self, value: object) -> tuple[str, ...]:
        parts = value.split(",") if isinstance(value, str) else value
        assert isinstance(parts, (list, tuple)), "a list must be text or a sequence"
        items = tuple(str(part).strip() for part in parts)
        if not self.choices or items == ("",):
            return tuple(item for item in items if item)
        wrong = [item for item in items if item not in self.choices]
        if wrong:
            raise ValueError(f"{wrong[0]!r} is none of {', '.join(self.choices)}")
        return tuple(dict.fromkeys(items))  # without duplicates, as in Kafka (KIP-1161)

    def _number(self, value: object) -> int | float:
        try:
            if isinstance(value, bool):
                raise ValueError
            number = float(str(value)) if self.kind is Kind.DOUBLE else int(str(value).strip())
        except ValueError:
            raise ValueError(f"expected a {self._numbers()}") from None
        least, most = self.bounds
        if number in self.allowed or least <= number <= most:
            return number
        bound = f"least {_plain(least)}" if number < least else f"most {_plain(most)}"
        raise ValueError(f"must be at {bound}" + "".join(f", or {each}" for each in self.allowed))

    def _numbers(self) -> str:
        numbers = "number" if self.kind is Kind.DOUBLE else "whole number"
        if self.least is not None:
            numbers += f" >= {_plain(self.least)}" if self.most is None else f" from {_plain(self.least)}"
        if self.most is not None:
            numbers += f" to {_plain(self.most)}"
        return numbers + "".join(f", or {each}" for each in self.allowed)

    @property
    def bounds(self) -> tuple[float, float]:
        """The least and the largest number, including the limits of the type."""
        most = _LARGEST.get(self.kind, float("inf"))
        least = -most - 1
        return (least if self.least is None else self.least), (most if self.most is None else self.most)

    def text(self, value: object) -> str | None:
        """Return a value as Kafka's tools show it."""
        if value is None:
            return None
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, tuple):
            return ",".join(value)
        return str(value.value if isinstance(value, Enum) else value)


def _shown(value: object) -> object:
    """Return a value without the password or query in an address."""
    return _QUERY.sub(r"\1***", _USER_INFO.sub("***@", value)) if isinstance(value, str) else value


def _plain(number: float) -> str:
    return str(int(number)) if number == int(number) else str(number)


def integer(default: int | None, documentation: str, *, least: int | None = 0, **more: Any) -> Any:
    """Declare a setting of Kafka's type INT, not negative unless `least` says so."""
    return _declare(Kind.INT, default, documentation, least=least, **more)


def long(default: int | None, documentation: str, *, least: int | None = 0, **more: Any) -> Any:
    """Declare a setting of Kafka's type LONG, not negative unless `least` says so."""
    return _declare(Kind.LONG, default, documentation, least=least, **more)


def short(default: int | None, documentation: str, *, least: int | None = 1, **more: Any) -> Any:
    """Declare a setting of Kafka's type SHORT."""
    return _declare(Kind.SHORT, default, documentation, least=least, **more)


def double(default: float, documentation: str, **more: Any) -> Any:
    """Declare a setting of Kafka's type DOUBLE."""
    return _declare(Kind.DOUBLE, default, documentation, **more)


def boolean(default: bool | None, documentation: str, **more: Any) -> Any:
    """Declare a setting that is true or false."""
    return _declare(Kind.BOOLEAN, default, documentation, **more)


def text(default: object, documentation: str, **more: Any) -> Any:
    """Declare a setting of Kafka's type STRING; with `parse`, the dataclass has the parsed value."""
    return _declare(Kind.STRING, default, documentation, **more)


def names(default: tuple[str, ...] | None, documentation: str, **more: Any) -> Any:
    """Declare a setting of Kafka's type LIST: names separated by commas, a tuple in the dataclass."""
    return _declare(Kind.LIST, default, documentation, **more)


def password(default: str | None, documentation: str, **more: Any) -> Any:
    """Declare a setting whose value is never shown."""
    return _declare(Kind.PASSWORD, default, documentation, **more)


def _declare(kind: Kind, default: object, documentation: str, **more: Any) -> Any:
    declared = {"kind": kind, "documentation": documentation, **more}
    return field(default=default, repr=kind is not Kind.PASSWORD, metadata=declared)


def dotted(name: str) -> str:
    """Return Kafka's name of a setting; none of them has an underscore."""
    return name.replace("_", ".")


def camel_case(name: str) -> str:
    """Return the name of an option in Spark's style."""
    return re.sub("_(.)", lambda found: found[1].upper(), name)


@cache
def settings_of(declaring: type[Any], named: Callable[[str], str] = dotted, group: str = "") -> Mapping[str, Setting]:
    """Return a class' declarations by name, in the order of its fields; those without a heading get `group`."""
    found = {}
    for each in fields(declaring):
        if each.metadata:
            more = {"name": named(each.name), "group": group, **each.metadata}
            required = each.default is MISSING
            default = None if required else each.default
            found[more["name"]] = Setting(field=each.name, default=default, required=required, **more)
    return MappingProxyType(found)

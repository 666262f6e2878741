"""How a setting is declared: once, and everything else is derived from it.

Theory of operation: a settings class is a frozen dataclass, and each of its fields is made by one of the functions
below (`integer`, `text`, ...), which notes type, range, documentation and how it may be changed in the field's
metadata. The field's name is the setting's name with underscores for dots, as no setting of Kafka has an underscore.
`settings_of` returns the declarations of a class; reading and checking of values, DescribeConfigs, `--help-settings`
and docs/broker_settings.md all come from them. A plain field without such a function counts too, but shows no help.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, Field, field, fields
from enum import Enum, IntEnum
from types import MappingProxyType
from typing import Any, NamedTuple

LONG_MAX = 2**63 - 1
INT_MAX = 2**31 - 1


class SettingError(ValueError):
    """A value that a setting cannot have; the message names both."""


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


class Update(Enum):
    """When a broker's setting may change, in the words of Kafka's documentation."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


class Setting(NamedTuple):
    """One declaration. `least` and `most` bound a number, `choices` a text or the items of a list."""

    name: str
    kind: Kind
    default: object
    documentation: str = ""
    update: Update = Update.READ_ONLY
    least: float | None = None
    most: float | None = None
    choices: tuple[str, ...] = ()
    allowed: tuple[int, ...] = ()
    """Numbers outside the bounds that are valid all the same."""
    kafka_default: str | None = None
    """Kafka's default as text, where ours is another."""
    broker: tuple[tuple[str, int], ...] = ()
    """Of a topic's setting: the broker's settings that it follows, the first one set counting, each with what its
    number is multiplied by."""
    kafka_kind: Kind | None = None
    """The type that Kafka reports to clients, where it is not `kind`."""

    @property
    def field(self) -> str:
        """The name of the dataclass' field."""
        return self.name.replace(".", "_")

    @property
    def shown_kind(self) -> Kind:
        """The type that clients see."""
        return self.kafka_kind or self.kind

    @property
    def sensitive(self) -> bool:
        """Whether no client and no log may see the value."""
        return self.kind is Kind.PASSWORD

    def read(self, value: object) -> Any:
        """Read a value, text as in a properties file or already of the type.

        Raises:
            SettingError: if it does not fit.
        """
        if value is None:
            if self.default is None:
                return None
            raise SettingError(f"{self.name} needs a value")
        if self.kind is Kind.LIST:
            return self._list(value)
        if self.kind in (Kind.STRING, Kind.CLASS, Kind.PASSWORD):
            text = str(value)
            if self.choices and text not in self.choices:
                raise SettingError(f"{self.name}={text!r}: expected {self._expected()}")
            return text
        if self.kind is Kind.BOOLEAN:
            word = str(value).strip().lower()
            if word not in ("true", "false"):
                raise SettingError(f"{self.name}={value!r}: expected true or false")
            return word == "true"
        return self._number(value)

    def _list(self, value: object) -> tuple[str, ...]:
        parts = value.split(",") if isinstance(value, str) else value
        assert isinstance(parts, (list, tuple)), "a list is given as text or as a sequence"
        items = tuple(item for part in parts if (item := str(part).strip()))
        wrong = [item for item in items if self.choices and item not in self.choices]
        if wrong:
            raise SettingError(f"{self.name}: {wrong[0]!r} is none of {', '.join(self.choices)}")
        return items

    def _expected(self) -> str:
        named = ", ".join(each for each in self.choices if each)
        if "" in self.choices:
            return f"empty or {named}"
        return f"one of {named}"

    def _number(self, value: object) -> int | float:
        try:
            if isinstance(value, bool):
                raise ValueError
            number = float(str(value)) if self.kind is Kind.DOUBLE else int(str(value).strip())
        except ValueError:
            expected = "a number" if self.kind is Kind.DOUBLE else "a whole number"
            raise SettingError(f"{self.name}={value!r}: expected {expected}") from None
        if number in self.allowed:
            return number
        least, most = self.bounds
        if number < least:
            raise SettingError(f"{self.name}={number}: must be at least {_plain(least)}")
        if not number <= most:
            raise SettingError(f"{self.name}={number}: must be at most {_plain(most)}")
        return number

    @property
    def bounds(self) -> tuple[float, float]:
        """The least and the largest number, those of the type included."""
        if self.kind is Kind.DOUBLE:
            least, most = float("-inf"), float("inf")
        else:
            most = {Kind.SHORT: 2**15 - 1, Kind.INT: INT_MAX}.get(self.kind, LONG_MAX)
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
        return str(value)


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


def boolean(default: bool, documentation: str, **more: Any) -> Any:
    """Declare a setting that is true or false."""
    return _declare(Kind.BOOLEAN, default, documentation, **more)


def text(default: str | None, documentation: str, **more: Any) -> Any:
    """Declare a setting of Kafka's type STRING."""
    return _declare(Kind.STRING, default, documentation, **more)


def names(default: tuple[str, ...] | None, documentation: str, **more: Any) -> Any:
    """Declare a setting of Kafka's type LIST: names with commas between them, a tuple in the dataclass."""
    return _declare(Kind.LIST, default, documentation, **more)


def class_name(default: str | None, documentation: str, **more: Any) -> Any:
    """Declare a setting of Kafka's type CLASS."""
    return _declare(Kind.CLASS, default, documentation, **more)


def password(default: str | None, documentation: str, **more: Any) -> Any:
    """Declare a setting whose value is never shown."""
    return _declare(Kind.PASSWORD, default, documentation, **more)


def _declare(kind: Kind, default: object, documentation: str, **more: Any) -> Any:
    shown = kind is not Kind.PASSWORD
    return field(default=default, repr=shown, metadata={"kind": kind, "documentation": documentation, **more})


_known: dict[type, Mapping[str, Setting]] = {}


def settings_of(kind: Any) -> Mapping[str, Setting]:
    """Return the declarations of a settings class by name, in the order of its fields."""
    found = _known.get(kind)
    if found is None:
        declared = (each for each in fields(kind) if each.metadata.get("setting", True))
        found = _known[kind] = MappingProxyType({setting.name: setting for setting in map(_setting, declared)})
    return found


_PLAIN_KINDS = {"int": Kind.LONG, "float": Kind.DOUBLE, "bool": Kind.BOOLEAN, "str": Kind.STRING}


def _setting(declared: Field[Any]) -> Setting:
    assert declared.default is not MISSING, f"{declared.name} has no default"
    name = declared.name.replace("_", ".")
    if declared.metadata:
        return Setting(name, default=declared.default, **declared.metadata)
    kind = _PLAIN_KINDS[str(declared.type)]
    return Setting(name, kind, declared.default, least=0 if kind is Kind.LONG else None)

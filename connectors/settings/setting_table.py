"""Tables of the ``kafka.*`` settings: each name that Kafka's clients know is supported, without effect, or rejected.

Nothing is dropped silently: a setting is used, known to make no difference here (with the reason), or an error that
says what to use instead. One table serves checking, the reference and the completion of names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from sparkonce.connectors.settings.options import Option, OptionError

PREFIX = "kafka."
FORMAT = "kafka_once"


@dataclass(frozen=True, slots=True)
class Setting(Option):
    """One setting that is honoured; its name is without ``kafka.``."""

    attribute: str = ""
    """The attribute of the client's settings that it becomes, if it becomes a single one."""


@dataclass(frozen=True, slots=True)
class SettingTable:
    """All the settings that one kind of client knows, by their names in lower case."""

    honoured: Mapping[str, Setting]
    without_effect: Mapping[str, str]
    """Why each makes no difference."""
    refused: Mapping[str, str]
    """What to use instead of each; a name that ends in ``.*`` stands for all that begin like it."""
    of_others: Mapping[str, str] = field(default_factory=dict)
    """The hints for names that another kind of client knows."""
    reference: str = "source"
    """What `sparkonce options` calls the use that has these settings."""

    def check(self, given: Iterable[str]) -> None:
        """Look at the names of settings.

        Raises:
            OptionError: for one that is refused, another client's or unknown, with what to use or the nearest name.
        """
        for name in given:
            if name in self.honoured or name in self.without_effect:
                continue
            instead = self.instead_of(name)
            raise refusal(name, instead) if instead else self._unknown(name)

    def instead_of(self, name: str) -> str | None:
        """Return what to use instead of an unsupported setting; None if it is supported, or unknown."""
        if name in self.honoured or name in self.without_effect:
            return None
        for refused, instead in self.refused.items():
            if name == refused or (refused.endswith("*") and name.startswith(refused[:-1])):
                return instead
        return self.of_others.get(name)

    def values(self, given: Mapping[str, str]) -> dict[str, Any]:
        """Read those settings that become attributes, by the attributes' names.

        Raises:
            OptionError: if one cannot be read.
        """
        return {
            setting.attribute: setting.read(given[name], FORMAT, PREFIX)
            for name, setting in self.honoured.items()
            if setting.attribute and name in given
        }

    def _unknown(self, name: str) -> OptionError:
        from sparkonce.connectors.reference.hints import setting_hint  # which imports all formats

        hint = setting_hint(self, name)
        return OptionError(f"{FORMAT}: option {PREFIX}{name} is not one that this client can honour; {hint}")


def by_name(*settings: Setting, group: str) -> dict[str, Setting]:
    """Put settings under their names, and those without a heading under ``group``."""
    return {setting.name: replace(setting, group=setting.group or group) for setting in settings}


def given_settings(options: Mapping[str, str]) -> dict[str, str]:
    """Pick the settings out of ``options``, by their names in lower case and without ``kafka.``."""
    return {key.lower()[len(PREFIX) :]: text.strip() for key, text in options.items() if key.lower().startswith(PREFIX)}


def refusal(name: str, instead: str) -> OptionError:
    """Return the error for an unsupported setting."""
    return OptionError(f"{FORMAT}: option {PREFIX}{name} is not supported: {instead}")

"""What a schema registry has, asked for while a page of it is open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sparkonce.connectors.schema_registry.client import Registry, RegistryError, Version
from sparkonce.jobs.cli.peek.clients import open_registry
from sparkonce.jobs.ui.kafka.answers import Answers

KEPT_S = 4.0
"""How long a response is cached."""
PATIENCE = {"schemaRegistry.max.retries": "0", "schemaRegistry.request.timeout.ms": "3000"}
"""The patience with a registry, by default: what does not answer is said within seconds."""


@dataclass(frozen=True, slots=True)
class SubjectState:
    """One subject, and one of its versions."""

    versions: Sequence[int]
    shown: Version
    compatibility: str | None
    """The level; None if this user may not read it, or the registry has none."""


class Subjects:
    """Reads a registry; any thread may call it."""

    def __init__(self, registry: Mapping[str, str], kafka: Mapping[str, str]) -> None:
        """Options have their prefixes. Raises OptionError if one is invalid."""
        made = open_registry("ui", {**PATIENCE, **registry} if registry else {}, kafka)
        self._answers: Answers[Registry, list[str] | SubjectState] | None = None
        if made is not None:
            self._answers = Answers(made, (RegistryError,), KEPT_S)

    @property
    def is_given(self) -> bool:
        """Whether a registry was named."""
        return self._answers is not None

    def all(self) -> tuple[list[str], Exception | None]:
        """Return the names of all subjects, and why they are not known anew. Raises RegistryError if none are known."""
        found, problem = self._asked().get("", Registry.subjects)
        if not isinstance(found, list):
            raise problem or RegistryError("the pages have ended")
        return found, problem

    def one(self, subject: str, version: int | None) -> tuple[SubjectState, Exception | None]:
        """Return a subject, and a version of it, or its latest; and raise, as `all`."""

        def ask(registry: Registry) -> SubjectState:
            versions, shown = registry.version_numbers(subject), registry.version(subject, version)
            return SubjectState(versions, shown, _compatibility(registry, subject))

        found, problem = self._asked().get((subject, version), ask)
        if not isinstance(found, SubjectState):
            raise problem or RegistryError("the pages have ended")
        return found, problem

    def close(self) -> None:
        """Close all connections."""
        if self._answers is not None:
            self._answers.close()

    def _asked(self) -> Answers[Registry, list[str] | SubjectState]:
        assert self._answers is not None, "asked only if a registry was named"
        return self._answers


def _compatibility(registry: Registry, subject: str) -> str | None:
    try:
        return registry.compatibility(subject)
    except RegistryError:
        return None

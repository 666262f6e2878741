"""What a schema registry has, asked for while a page of it is open."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from sparkonce.connectors.schema_registry.client import Registry, RegistryError, Version
from sparkonce.jobs.cli.peek.clients import open_registry
from sparkonce.jobs.ui.delta.paced import PacedResults

AnswerT = TypeVar("AnswerT")


@dataclass(frozen=True, slots=True)
class SubjectState:
    """One subject, and one of its versions."""

    versions: Sequence[int]
    shown: Version
    compatibility: str


class Subjects:
    """Reads a registry; any thread may call it."""

    def __init__(self, registry: Mapping[str, str], kafka: Mapping[str, str]) -> None:
        """Options have their prefixes. Raises OptionError if one is invalid."""
        self._registry = open_registry("ui", registry, kafka)
        self._lock = threading.Lock()
        self._is_closed = False
        self._all: PacedResults[list[str]] = PacedResults()
        self._states: PacedResults[SubjectState] = PacedResults()

    @property
    def is_given(self) -> bool:
        """Whether a registry was named."""
        return self._registry is not None

    def all(self) -> list[str]:
        """Return the names of all subjects. Raises RegistryError."""
        return self._all.get("", lambda: self._asked(Registry.subjects))

    def one(self, subject: str, version: int | None) -> SubjectState:
        """Return a subject, and a version of it, or its latest. Raises RegistryError."""

        def ask(registry: Registry) -> SubjectState:
            versions, shown = registry.version_numbers(subject), registry.version(subject, version)
            return SubjectState(versions, shown, registry.compatibility(subject))

        return self._states.get((subject, version), lambda: self._asked(ask))

    def close(self) -> None:
        """Close all connections."""
        with self._lock:
            self._is_closed = True
            if self._registry is not None:
                self._registry.close()

    def _asked(self, ask: Callable[[Registry], AnswerT]) -> AnswerT:
        with self._lock:
            if self._registry is None or self._is_closed:  # a page may still be read at the end
                raise RegistryError("no registry was named, or the pages have ended")
            return ask(self._registry)

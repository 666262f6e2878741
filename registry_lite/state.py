"""The state of a registry: a pure function of the records of its topic, in order.

Source of the records: the topic ``_schemas`` as Confluent's registry writes it. A key has the type of the record
(``keytype``), and a record replaces the last one with the same key.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from sparkonce.registry_lite.errors import ApiError

Answer = TypeVar("Answer")
Document = dict[str, Any]
AVRO = "AVRO"
DEFAULT_CONFIG: Document = {"compatibilityLevel": "BACKWARD"}
DEFAULT_MODE = "READWRITE"
READ_ONLY_OVERRIDE = "READONLY_OVERRIDE"
DEFAULT_CONTEXT = "."
LAST_IDS = "lastIds"


@dataclass(frozen=True, slots=True)
class Content:
    """The parts of a schema that are compared."""

    kind: str
    text: str
    references: tuple[tuple[str, str, int], ...] = ()
    """(name, subject, version)"""
    metadata: str | None = None
    """As JSON."""
    rule_set: str | None = None
    """As JSON."""
    recorded_guid: str | None = field(default=None, compare=False)
    """The GUID in a record; other registries may compute it differently."""

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Content:
        """Return the content of a request, or of a record's value. Raises KeyError or TypeError if it is invalid."""
        references = tuple(
            (_typed(each["name"], str), _typed(each["subject"], str), _typed(each["version"], int))
            for each in document.get("references") or ()
        )
        kind, text = _typed(document.get("schemaType") or AVRO, str), _typed(document["schema"], str)
        guid = document.get("guid")
        return cls(
            kind,
            text,
            references,
            _json(document, "metadata"),
            _json(document, "ruleSet"),
            None if guid is None else _typed(guid, str),
        )

    def document(self) -> Document:
        """Return the form of responses and records, without missing fields."""
        made: Document = {}
        if self.kind != AVRO:
            made["schemaType"] = self.kind
        if self.references:
            made["references"] = [
                dict(zip(("name", "subject", "version"), each, strict=True)) for each in self.references
            ]
        if self.metadata is not None:
            made["metadata"] = json.loads(self.metadata)
        if self.rule_set is not None:
            made["ruleSet"] = json.loads(self.rule_set)
        return {**made, "schema": self.text}

    @property
    def guid(self) -> str:
        """The GUID: from a record, or else computed from the content."""
        if self.recorded_guid is not None:
            return self.recorded_guid
        parts = json.dumps([self.kind, self.text, self.references, self.metadata, self.rule_set])
        return str(uuid.UUID(bytes=hashlib.md5(parts.encode(), usedforsecurity=False).digest()))


def _typed(value: Any, kind: type[Answer]) -> Answer:
    if not isinstance(value, kind) or isinstance(value, bool):
        raise TypeError(f"expected {kind.__name__}, found {value!r:.100}")
    return value


def _json(document: Mapping[str, Any], name: str) -> str | None:
    found = document.get(name)
    return None if found is None else json.dumps(found, sort_keys=True)


@dataclass(frozen=True, slots=True)
class Entry:
    """One version of a subject."""

    subject: str
    version: int
    id: int
    content: Content
    deleted: bool = False
    """Soft-deleted: it can still be read by its id."""

    def document(self) -> Document:
        """Return the form of responses."""
        head = {"subject": self.subject, "version": self.version, "id": self.id, "guid": self.content.guid}
        return {**head, **self.content.document()}

    def record(self) -> tuple[Document, Document]:
        """Return its record."""
        return schema_key(self.subject, self.version), {**self.document(), "deleted": self.deleted}


def schema_key(subject: str, version: int) -> Document:
    """Return the key of a version's record."""
    return {"keytype": "SCHEMA", "subject": subject, "version": version, "magic": 1}


def setting_key(keytype: str, subject: str | None) -> Document:
    """Return the key of a record about compatibility (``CONFIG``) or mode (``MODE``)."""
    return {"keytype": keytype, "subject": subject, "magic": 0}


def context_of(subject: str) -> str:
    """Return the context in a subject's name, ``:.context:name``; ``.`` is the default."""
    if subject.startswith(":."):
        return subject[1:].partition(":")[0]
    return DEFAULT_CONTEXT


def context_named(name: str) -> str:
    """Return the context of ``.name``, ``name`` or ``:.name:`` in a path. Raises ApiError if the name is invalid."""
    found = name.strip(":")
    if ":" in found or not found.isprintable():
        raise ApiError(400, 400, f"Invalid context: {name!r}")
    return found if found.startswith(".") else f".{found}"


def qualified(subject: str, context: str) -> str:
    """Return a subject's full name, given its name within a context."""
    if subject.startswith(":.:"):
        return subject[3:]
    if subject.startswith(":.") or context == DEFAULT_CONTEXT:
        return subject
    return f":{context}:{subject}"


@dataclass
class State:
    """Subjects with their versions, compatibility and modes."""

    subjects: dict[str, dict[int, Entry]] = field(default_factory=dict)
    configs: dict[str | None, Document] = field(default_factory=dict)
    modes: dict[str | None, str] = field(default_factory=dict)
    """By subject; None is the default of all."""
    last_ids: dict[str, int] = field(default_factory=dict)
    """By context, the largest used id."""

    def apply(self, key: Mapping[str, Any], value: Mapping[str, Any] | None) -> None:
        """Apply a record; one of an unknown type is ignored, as by Confluent's registry."""
        match key.get("keytype"):
            case "SCHEMA":
                self._schema(key, value)
            case "CONFIG":
                _put(self.configs, key.get("subject"), None if value is None else dict(value))
            case "MODE":
                _put(self.modes, key.get("subject"), None if value is None else _typed(value["mode"], str))
            case "DELETE_SUBJECT" if value is not None:
                for entry in list(self.subjects.get(key["subject"], {}).values()):
                    if entry.version <= value["version"]:
                        self._keep(Entry(entry.subject, entry.version, entry.id, entry.content, deleted=True))
            case "CLEAR_SUBJECT":
                self.subjects.pop(key["subject"], None)
            case "NOOP" if isinstance(value, Mapping):
                for context, number in dict(value.get(LAST_IDS) or {}).items():
                    self.last_ids[context] = max(self.last_ids.get(context, 0), _typed(number, int))

    def _schema(self, key: Mapping[str, Any], value: Mapping[str, Any] | None) -> None:
        subject, version = _typed(key["subject"], str), _typed(key["version"], int)
        if value is None:
            versions = self.subjects.get(subject, {})
            versions.pop(version, None)
            if not versions:
                self.subjects.pop(subject, None)
            return
        number = _typed(value["id"], int)
        self._keep(Entry(subject, version, number, Content.read(value), bool(value.get("deleted"))))

    def _keep(self, entry: Entry) -> None:
        self.subjects.setdefault(entry.subject, {})[entry.version] = entry
        context = context_of(entry.subject)
        self.last_ids[context] = max(self.last_ids.get(context, 0), entry.id)

    def entries(self, context: str | None = None) -> Iterator[Entry]:
        """Yield all versions, including soft-deleted ones, of one context or of all."""
        for subject in sorted(self.subjects):
            if context is None or context_of(subject) == context:
                yield from (self.subjects[subject][version] for version in sorted(self.subjects[subject]))

    def versions(self, subject: str, *, deleted: bool = False) -> list[Entry]:
        """Return a subject's versions in order; with ``deleted`` also soft-deleted ones."""
        found = self.subjects.get(subject, {})
        return [found[version] for version in sorted(found) if deleted or not found[version].deleted]

    def content(self, number: int, context: str) -> Content | None:
        """Return the schema of an id; None if there is none."""
        return next((each.content for each in self.entries(context) if each.id == number), None)

    def referring(self, subject: str, version: int) -> list[int]:
        """Return the ids of the schemas that reference a version and are not deleted."""
        return sorted({each.id for each in self.entries() if not each.deleted and _refers(each, subject, version)})

    def config(self, subject: str | None) -> Document:
        """Return a subject's effective compatibility: its own, its context's, or the default of all."""
        return {**DEFAULT_CONFIG, **self.configs.get(None, {}), **_of(self.configs, subject)}

    def mode(self, subject: str | None) -> str:
        """Return a subject's effective mode."""
        for_all = self.modes.get(None, DEFAULT_MODE)
        if subject is None or for_all == READ_ONLY_OVERRIDE:
            return for_all
        return self.modes.get(subject, self.modes.get(f":{context_of(subject)}:", for_all))


def _refers(entry: Entry, subject: str, version: int) -> bool:
    context = context_of(entry.subject)
    return any((qualified(name, context), each) == (subject, version) for _, name, each in entry.content.references)


def _of(configs: Mapping[str | None, Document], subject: str | None) -> Document:
    if subject is None:
        return {}
    return {**configs.get(f":{context_of(subject)}:", {}), **configs.get(subject, {})}


def _put(settings: dict[str | None, Any], subject: str | None, value: Any) -> None:
    if value is None:
        settings.pop(subject, None)
    else:
        settings[subject] = value

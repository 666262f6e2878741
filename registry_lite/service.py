"""The logic of the REST API: decisions on the state, and the resulting records."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from sparkonce.registry_lite.compatibility import MODES as LEVELS
from sparkonce.registry_lite.compatibility import Schema, format_of, incompatible, protobuf
from sparkonce.registry_lite.errors import (
    ApiError,
    invalid_schema,
    invalid_subject,
    invalid_version,
    not_permitted,
    reference_exists,
    schema_not_found,
    subject_deleted,
    subject_not_deleted,
    subject_not_found,
    version_deleted,
    version_not_deleted,
    version_not_found,
)
from sparkonce.registry_lite.state import (
    DEFAULT_CONTEXT,
    LAST_IDS,
    Content,
    Document,
    Entry,
    State,
    context_of,
    qualified,
    schema_key,
    setting_key,
)

READ_WRITE, READ_ONLY, READ_ONLY_OVERRIDE, IMPORT = "READWRITE", "READONLY", "READONLY_OVERRIDE", "IMPORT"
MODES = (READ_WRITE, READ_ONLY, READ_ONLY_OVERRIDE, IMPORT)
LATEST = "latest"
MAX_ID = 2**31 - 1
"""The largest id and version: Java clients have 32-bit signed integers."""
_LATEST = (LATEST, "-1")
EVERY_CONTEXT = ":*:"
_RESERVED = ("__GLOBAL", "__EMPTY")
Records = Sequence[tuple[Document, Document | None]]
Write = Callable[[Records], None]
"""Writes records, and returns once they are committed and in the state."""


@dataclass
class RegistryService:
    """A registry over a state; one request at a time changes it."""

    state: State
    write: Write
    reading: threading.Condition
    """Held while the state is read; while `write` waits on it, new records may change the state."""
    settle: Callable[[], None] = lambda: None
    """Reads the topic to its end; called before a decision that changes the state."""
    _changing: threading.Lock = field(default_factory=threading.Lock)
    """Held, outside of `reading`, from a decision until its records are in the state."""

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Lock the state for a change. Raises ApiError if this registry cannot write, temporarily or any more."""
        with self._changing:
            self.settle()
            with self.reading:
                yield

    def subjects(self, prefix: str, *, deleted: bool = False, deleted_only: bool = False) -> list[str]:
        """Return the names of subjects with a prefix: ``:*:`` for all, ``:.name:`` for those of a context.

        Args:
            prefix: the prefix; without a context, only the default one is searched.
            deleted: include soft-deleted ones.
            deleted_only: return soft-deleted ones only.
        """
        every, wanted = prefix == EVERY_CONTEXT, qualified(prefix, DEFAULT_CONTEXT)
        found = [
            subject
            for subject in sorted(self.state.subjects)
            if every or (subject.startswith(wanted) and context_of(subject) == context_of(wanted))
        ]
        if deleted_only:
            return [each for each in found if not self.state.versions(each)]
        return [each for each in found if self.state.versions(each, deleted=deleted)]

    def entry(self, subject: str, version: str, *, deleted: bool = False) -> Entry:
        """Return a version of a subject; the latest is never a soft-deleted one. Raises ApiError if there is none."""
        number = None if version in _LATEST else _version(version)
        found = self.state.versions(subject, deleted=deleted)
        if not found:
            raise subject_not_found(subject)
        match = [each for each in found if (not each.deleted if number is None else each.version == number)]
        if not match:
            raise version_not_found(-1 if number is None else number)
        return match[-1]

    def content(self, number: int, subject: str | None) -> Content:
        """Return an id's schema, in a subject's context or else the default one. Raises ApiError if there is none."""
        found = self.state.content(number, context_of(subject or ""))
        if found is None:
            raise schema_not_found(number)
        return found

    def with_guid(self, guid: str) -> Entry:
        """Return a version whose schema has a GUID. Raises ApiError if there is none."""
        found = next((each for each in self.state.entries() if each.content.guid == guid), None)
        if found is None:
            raise schema_not_found(guid)
        return found

    def lookup(self, subject: str, document: Mapping[str, Any], *, deleted: bool, normalize: bool = False) -> Entry:
        """Return the version of a subject with this schema. Raises ApiError if there is none, or it is invalid."""
        content = self._read(subject, document, normalize=normalize)
        versions = self.state.versions(subject, deleted=deleted)
        if not versions:
            raise subject_not_found(subject)
        found = self._among(versions, subject, content)
        if found is None:
            raise schema_not_found()
        return found

    def known(self, subject: str, document: Mapping[str, Any], *, normalize: bool = False) -> Entry | None:
        """Return the version that registering would return without a change, or None. Raises ApiError if invalid."""
        content = self._read(subject, document, normalize=normalize)
        number, _ = _wanted(document)
        found = self._among(self.state.versions(subject), subject, content)
        return found if found is not None and number in (None, found.id) else None

    def register(self, subject: str, document: Mapping[str, Any], *, normalize: bool = False) -> Entry:
        """Register a schema, unless the subject already has it; return its version.

        Raises:
            ApiError: if the schema is invalid or not compatible, or the mode forbids it.
        """
        check_subject(subject)
        found = self.known(subject, document, normalize=normalize)
        if found is not None:
            return found
        mode, (number, version) = self.state.mode(subject), _wanted(document)
        if mode in (READ_ONLY, READ_ONLY_OVERRIDE):
            raise not_permitted(f"Subject {subject} is in read-only mode")
        if number is not None and mode != IMPORT:
            raise not_permitted(f"Subject {subject} is not in import mode")
        if number is None and mode != READ_WRITE:
            raise not_permitted(f"Subject {subject} is not in read-write mode")
        content = self._after(subject, self._read(subject, document, normalize=normalize))
        every = self.state.versions(subject, deleted=True)
        following = every[-1].version + 1 if every else 1
        if number is None:
            entry = self._new(subject, following, content)
            if version not in (None, following):
                raise invalid_schema(f"Version is not one more than previous version {following - 1}")
        else:
            entry = self._imported(subject, version or following, number, content)
        self.write([entry.record()])
        return entry

    def _new(self, subject: str, version: int, content: Content) -> Entry:
        """Return the next version of a subject, with the id that its schema already has or else a new one."""
        problems = self.problems(subject, content, self.state.versions(subject))
        if problems:
            told = f'Schema being registered is incompatible with an earlier schema for subject "{subject}", details: '
            raise ApiError(409, 409, f"{told}[{'; '.join(problems)}]")
        context = context_of(subject)
        known = next((each.id for each in self.state.entries(context) if each.content == content), None)
        number = self.state.last_ids.get(context, 0) + 1 if known is None else known
        if number > MAX_ID:
            raise not_permitted(f"No id is left in context {context}: {MAX_ID} was used")
        return Entry(subject, version, number, content)

    def _imported(self, subject: str, version: int, number: int, content: Content) -> Entry:
        """Return a version with the client's version number and id."""
        known = self.state.content(number, context_of(subject))
        there = self.state.subjects.get(subject, {}).get(version)
        if known is not None and known != content:
            raise not_permitted(f"Overwrite new schema with id {number} is not permitted.")
        if there is not None and there.content != content:
            raise not_permitted(f"Overwrite version {version} of subject {subject} is not permitted.")
        return Entry(subject, version, number, content)

    def _after(self, subject: str, content: Content) -> Content:
        """Return a content with the metadata and rules of the last version, unless it has its own."""
        versions = self.state.versions(subject)
        if not versions:
            return content
        before = versions[-1].content
        metadata = before.metadata if content.metadata is None else content.metadata
        return replace(
            content, metadata=metadata, rule_set=before.rule_set if content.rule_set is None else content.rule_set
        )

    def _among(self, versions: Sequence[Entry], subject: str, content: Content) -> Entry | None:
        """Return the last of some versions with this schema; metadata and rules are compared if the schema has any."""
        for entry in reversed(versions):
            other = entry.content
            if (content.kind, content.references) != (other.kind, other.references):
                continue
            if content.metadata not in (None, other.metadata) or content.rule_set not in (None, other.rule_set):
                continue
            if content.text == other.text or self._same(subject, content) == self._same(subject, other):
                return entry
        return None

    def problems(self, subject: str, content: Content, versions: Sequence[Entry]) -> list[str]:
        """Return why a schema is incompatible with some versions of a subject."""
        level = self.state.config(subject)["compatibilityLevel"]
        if level == "NONE" or not versions:
            return []
        compared = versions if level.endswith("_TRANSITIVE") else versions[-1:]
        other = [each for each in compared if each.content.kind != content.kind]
        if other:
            return [f"the schema type {content.kind} is not that of version {other[-1].version}"]
        before = [self._with_references(subject, each.content) for each in compared]
        return incompatible(content.kind, level, self._with_references(subject, content), before)

    def compatible(self, subject: str, document: Mapping[str, Any], version: str | None) -> list[str]:
        """Return why a schema is incompatible with one version of a subject, or with all (None).

        Any schema may be the first of a subject, so a subject without versions is no error.

        Raises:
            ApiError: if there is no version of this number, or the schema is invalid.
        """
        versions = self.state.versions(subject)
        if version in _LATEST:
            versions = versions[-1:]
        elif version is not None:
            number = _version(version)
            versions = [each for each in versions if each.version == number]
            if not versions:
                raise version_not_found(number)
        return self.problems(subject, self._read(subject, document), versions)

    def serialized(self, subject: str, content: Content) -> str:
        """Return the text of a schema for ``format=serialized``: for Protobuf, the descriptor in base64."""
        text, references = self._with_references(subject, content)
        return protobuf.serialized(text, references) if content.kind == "PROTOBUF" else text

    def delete_version(self, subject: str, version: str, *, permanent: bool) -> int:
        """Delete a version, softly or after that for good. Raises ApiError if missing, referenced or not yet soft."""
        self._check_writable(subject)
        entry = self.entry(subject, version, deleted=True)
        if permanent and not entry.deleted:
            raise version_not_deleted(subject, entry.version)
        if entry.deleted and not permanent:
            raise version_deleted(subject, entry.version)
        self._check_unused(entry)
        if permanent:
            self.write([(schema_key(subject, entry.version), None), self._used_ids()])
        else:
            self.write([replace(entry, deleted=True).record()])
        return entry.version

    def delete_subject(self, subject: str, *, permanent: bool) -> list[int]:
        """Delete all versions of a subject; raises as `delete_version`."""
        self._check_writable(subject)
        entries = self.state.versions(subject, deleted=permanent)
        if not entries:
            raise subject_deleted(subject) if self.state.subjects.get(subject) else subject_not_found(subject)
        if permanent and any(not each.deleted for each in entries):
            raise subject_not_deleted(subject)
        for entry in entries:
            self._check_unused(entry)
        kinds = (("CONFIG", self.state.configs), ("MODE", self.state.modes))
        records: list[tuple[Document, Document | None]]
        records = [(setting_key(kind, subject), None) for kind, settings in kinds if subject in settings]
        if permanent:
            records += [(schema_key(subject, each.version), None) for each in entries]
            records.append(self._used_ids())
        else:
            records += [replace(each, deleted=True).record() for each in entries]
        self.write(records)
        return [each.version for each in entries]

    def _used_ids(self) -> tuple[Document, Document]:
        """Return the record that keeps used ids from being reused after compaction has removed their schemas."""
        # Other readers ignore such a key.
        return {"keytype": "NOOP", "magic": 0}, {LAST_IDS: dict(self.state.last_ids)}

    def set_config(self, subject: str | None, document: Mapping[str, Any]) -> Document:
        """Set the compatibility of a subject, or of all. Raises ApiError if there is no such level."""
        level = document.get("compatibility") or document.get("compatibilityLevel")
        if level is not None and str(level).upper() not in LEVELS:
            raise ApiError(422, 42203, f"Invalid compatibility level. Valid values are {', '.join(LEVELS)}")
        check_subject(subject)
        others = {name: each for name, each in document.items() if name not in ("compatibility", "compatibilityLevel")}
        before = self.state.configs.get(subject, {})
        value = {**before, **others, **({} if level is None else {"compatibilityLevel": str(level).upper()})}
        self.write([(setting_key("CONFIG", subject), value)])
        return dict(document)

    def config(self, subject: str | None, *, default_to_global: bool) -> Document:
        """Return the compatibility of a subject, or of all. Raises ApiError if it has none, and no default is due."""
        if default_to_global or subject is None:
            return self.state.config(subject)
        if subject not in self.state.configs:
            raise ApiError(404, 40408, f"Subject '{subject}' does not have subject-level compatibility configured")
        return dict(self.state.configs[subject])

    def delete_config(self, subject: str | None) -> Document:
        """Remove and return the compatibility of a subject, or of all. Raises ApiError if the subject has none."""
        if subject is not None and subject not in self.state.configs:
            raise subject_not_found(subject)
        before = self.config(subject, default_to_global=subject is None)
        self.write([(setting_key("CONFIG", subject), None)])
        return before

    def set_mode(self, subject: str | None, mode: str, *, force: bool) -> str:
        """Set the mode of a subject, or of all. Raises ApiError if there is no such mode, or ids could change."""
        if mode not in MODES:
            raise ApiError(422, 42204, f"Invalid mode. Valid values are {', '.join(MODES)}")
        check_subject(subject)
        subjects = [subject] if subject is not None else list(self.state.subjects)
        if mode == IMPORT and not force and any(self.state.versions(each) for each in subjects):
            raise not_permitted("Cannot import since found existing subjects")
        self.write([(setting_key("MODE", subject), {"mode": mode})])
        return mode

    def mode(self, subject: str | None, *, default_to_global: bool) -> str:
        """Return the mode of a subject, or of all. Raises ApiError if it has none, and no default is requested."""
        if subject is not None and subject not in self.state.modes and not default_to_global:
            raise ApiError(404, 40409, f"Subject '{subject}' does not have subject-level mode configured")
        return self.state.mode(subject)

    def delete_mode(self, subject: str | None) -> str:
        """Remove and return the mode of a subject, or of all. Raises ApiError if the subject has none of its own."""
        if subject is not None and subject not in self.state.modes:
            raise subject_not_found(subject)
        before = self.mode(subject, default_to_global=False)
        self.write([(setting_key("MODE", subject), None)])
        return before

    def _check_writable(self, subject: str) -> None:
        if self.state.mode(subject) in (READ_ONLY, READ_ONLY_OVERRIDE):
            raise not_permitted(f"Subject {subject} is in read-only mode")

    def _check_unused(self, entry: Entry) -> None:
        users = self.state.referring(entry.subject, entry.version)
        if users:
            raise reference_exists(entry.subject, entry.version, users)

    def _read(self, subject: str, document: Mapping[str, Any], *, normalize: bool = False) -> Content:
        """Return the content of a request, checked, in the form that is stored."""
        if not isinstance(document.get("schema"), str) or not document["schema"].strip():
            raise ApiError(422, 42201, "Empty schema")
        try:
            content = Content.read({**document, "guid": None})
        except (KeyError, TypeError) as error:
            raise invalid_schema(f"the request is not of the API's form: {error!r}") from None
        named = [(name, other, self._version_of(subject, other, number)) for name, other, number in content.references]
        content = replace(content, references=tuple(named))
        rules = format_of(content.kind)
        normalize = normalize or bool(self.state.config(subject).get("normalize"))
        with _schema_errors():
            text, references = self._with_references(subject, content)
            return replace(content, text=(rules.normal if normalize else rules.check)(text, references))

    def _version_of(self, subject: str, other: str, number: int) -> int:
        """Return the version in a reference; -1 is the latest."""
        if number != -1:
            return number
        return self.entry(qualified(other, context_of(subject)), LATEST).version

    def _same(self, subject: str, content: Content) -> str:
        """Return a text that is equal for equal schemas; the schema's text, if a reference is missing."""
        try:
            return format_of(content.kind).same(*self._with_references(subject, content))
        except (ApiError, ValueError, RecursionError):
            return content.text

    def _with_references(self, subject: str, content: Content) -> Schema:
        """Return a schema's text, with direct and indirect references; ``subject`` selects the context."""
        made: dict[str, str] = {}
        self._collect(context_of(subject), content, made)
        return content.text, list(made.items())

    def _collect(self, context: str, content: Content, made: dict[str, str]) -> None:
        for name, named, version in content.references:
            if name in made:
                continue
            subject = qualified(named, context)
            found = self.state.subjects.get(subject, {}).get(version)
            if found is None:
                raise invalid_schema(f"no version {version} of subject {subject}, which it refers to as {name}")
            self._collect(context_of(subject), found.content, made)
            made[name] = found.content.text


def check_subject(subject: str | None) -> None:
    """Check a subject's name. Raises ApiError if it is invalid."""
    if subject is not None and (not subject.isprintable() or not subject.strip() or subject in _RESERVED):
        raise invalid_subject(subject)


@contextmanager
def _schema_errors() -> Iterator[None]:
    try:
        yield
    except (ValueError, RecursionError) as error:
        raise invalid_schema(str(error)) from None


def _wanted(document: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """Return the id and the version in a request, None if missing."""
    found: list[int | None] = []
    for name in ("id", "version"):
        number = document.get(name)
        if number is not None and (not isinstance(number, int) or isinstance(number, bool) or number > MAX_ID):
            raise invalid_schema(f"{name} is not a number that one can have")
        found.append(number if number is not None and number > 0 else None)
    return found[0], found[1]


def _version(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 10 or not 1 <= int(text) < 2**31:
        raise invalid_version(text)
    return int(text)

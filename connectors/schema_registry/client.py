"""The requests of source and sink to a schema registry: schemas by id, the latest of a subject, registration.

Confluent's own client uses one address at a time. This module adds: the last responding address is asked first, all
are retried with growing pauses, earlier schemas are read from disk while none responds, and errors name the
remedy. No class of Confluent's leaves this module.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from sparkonce.connectors.schema_registry.cache import DiskCache
from sparkonce.connectors.schema_registry.settings import PREFIX, RegistrySettings, context_of
from sparkonce.kafka.client.retry import growing, retry
from sparkonce.offset_store.secrets import HIDDEN, without_secrets

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import SchemaRegistryClient

Answer = TypeVar("Answer")
AVRO, PROTOBUF, JSON_SCHEMA = "AVRO", "PROTOBUF", "JSON"
MAX_REFERENCES = 1000
"""Schemas that one schema may refer to, directly or not."""
MAX_KEPT = 10_000
"""Schemas that a process keeps in memory."""
MAX_SHOWN = 500
"""Characters of a registry's or library's message that an error of ours shows."""
_NOT_FOUND = frozenset({40401, 40402, 40403, 40404, 40405, 40408})
"""Error codes about a subject, version, schema or level that is unknown, or was deleted."""
_TEMPORARY = frozenset({408, 429, 500, 502, 503, 504})
"""HTTP statuses after which a request is repeated."""
_TOKEN = re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{16,}")
"""What an error may show of a proxy's page: tokens come from the issuer, so no option lists them as secrets."""
MAX_ID = 2**31 - 1
"""The largest id that Confluent's registry accepts; for larger ones it answers as for an unknown path."""
_log = logging.getLogger(__name__)


class RegistryError(Exception):
    """A registry that did not fulfil a request."""


class UnreachableRegistryError(RegistryError):
    """A registry that does not answer, or not now."""


class NotARegistryError(RegistryError):
    """What answers is no schema registry."""


class RegistryLoginError(RegistryError):
    """A registry that does not accept this user, or does not let it do this."""


class UnknownSchemaError(RegistryError):
    """An id, a subject or a version that the registry does not have."""


class RejectedSchemaError(RegistryError):
    """A schema that the registry does not accept: it is not valid, or not compatible with those before it."""


@dataclass(frozen=True, slots=True)
class Reference:
    """A schema that another one refers to."""

    name: str
    subject: str
    version: int
    text: str
    direct: bool = True
    """Whether the schema itself names it, not only one of its references."""


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema as a registry has it."""

    kind: str
    """`AVRO`, `PROTOBUF` or `JSON_SCHEMA`."""
    text: str
    references: tuple[Reference, ...] = ()
    """All that it refers to, directly or not; each after those that it refers to itself."""


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a subject."""

    subject: str
    version: int
    id: int
    schema: RegisteredSchema
    guid: str | None = None
    """None of a registry that has no GUIDs."""


@dataclass
class Registry:
    """A client of one registry; use `shared_registry`, which keeps one for each process."""

    settings: RegistrySettings
    _kept: dict[str, RegisteredSchema] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._disk = DiskCache(self.settings.url or ())
        self._urls = list(self.settings.url or ())
        """The address that answered last comes first."""
        self._clients: dict[str, SchemaRegistryClient] = {}

    def schema(self, number: int, subject: str | None = None) -> RegisteredSchema:
        """Return the schema with an id, of the context that ``subject`` names, or else of the settings' context.

        Raises:
            UnknownSchemaError: there is none.
            UnreachableRegistryError: the registry does not answer, and this user has not read the schema here before.
            NotARegistryError, RegistryLoginError: what answers is something else, or refuses this user.
        """
        if number > MAX_ID:
            raise UnknownSchemaError(f"{self._where} has no schema of id {number}: ids end at {MAX_ID}")
        context = context_of(subject) or self.settings.context
        # Without a name after it, only the context would be requested.
        asked = None if context is None else f":{context}:"
        ask = lambda client: client.get_schema(number, subject_name=asked)  # noqa: E731
        what = f"id {number}" + ("" if context is None else f" of context {context}")
        return self._cached(_file_name("id", context, number), what, ask, context)

    def schema_by_guid(self, guid: str) -> RegisteredSchema:
        """Return the schema with a GUID; raises as `schema`."""
        ask = lambda client: client.get_schema_by_guid(guid)  # noqa: E731
        context = self.settings.context  # that of its references, whose names may have none
        return self._cached(_file_name("guid", context, guid), f"GUID {guid}", ask, context)

    def latest(self, subject: str) -> Version:
        """Return the latest version of a subject; raises as `schema`, but always asks."""
        return self.version(subject, None)

    def version(self, subject: str, number: int | None, *, deleted: bool = False) -> Version:
        """Return a version of a subject, the latest for None; with ``deleted`` also one that was deleted softly.

        Raises as `latest`.
        """
        what = f"the {'latest version' if number is None else f'version {number}'} of subject {subject}"
        name = self.settings.qualified(subject)

        def ask(client: SchemaRegistryClient) -> Any:
            return client.get_latest_version(name) if number is None else client.get_version(name, number, deleted)

        found = self._ask(what, ask)
        self._check(what, found.version, found.schema_id)
        schema = self._with_references(what, found.schema, context_of(name), None)
        return Version(subject, found.version, found.schema_id, schema, found.guid)

    def subjects(self) -> list[str]:
        """Return the names of all subjects, or of those of the settings' context; raises as `latest`."""
        found = map(str, self._ask("its subjects", lambda client: client.get_subjects()))
        of_context = "" if self.settings.context is None else f":{self.settings.context}:"
        return sorted(each.removeprefix(of_context) for each in found if each.startswith(of_context))

    def version_numbers(self, subject: str) -> list[int]:
        """Return the numbers of a subject's versions; raises as `latest`."""
        name = self.settings.qualified(subject)
        return sorted(self._ask(f"the versions of subject {subject}", lambda client: client.get_versions(name)))

    def compatibility(self, subject: str) -> str:
        """Return the level by which new versions of a subject are checked, its own or the registry's.

        Raises as `latest`.
        """
        name = self.settings.qualified(subject)
        try:
            return str(self._ask(f"the level of subject {subject}", lambda client: client.get_compatibility(name)))
        except UnknownSchemaError:  # it has none of its own
            return str(self._ask("its compatibility level", lambda client: client.get_compatibility()))

    def version_number(self, subject: str, schema_id: int) -> int:
        """Return which version of a subject an id is, also of one that was deleted softly: the newest, if several.

        Raises:
            UnknownSchemaError: it is none; and as `latest`.
        """
        name = self.settings.qualified(subject)
        what = f"the version of subject {subject} with the id {schema_id}"
        found = self._ask(what, lambda client: client.get_schema_versions(schema_id, name, deleted=True))
        numbers: list[int] = [each.version for each in found if each.subject == name]
        if not numbers:
            raise UnknownSchemaError(f"{self._where} has no version of subject {subject} with the id {schema_id}")
        self._check(what, *numbers)
        return max(numbers)

    def is_deleted(self, subject: str, version: int) -> bool:
        """Return whether a version of a subject is there, and was deleted softly; raises as `latest`."""
        name, what = self.settings.qualified(subject), f"the versions of subject {subject}"
        if version in self._ask(what, lambda client: client.get_versions(name)):
            return False
        return version in self._ask(what, lambda client: client.get_versions(name, deleted=True))

    def register(self, subject: str, schema: RegisteredSchema) -> int:
        """Register a schema, unless it is there; return its id.

        Raises:
            RejectedSchemaError: the registry does not accept it; and as `latest`.
        """
        name, theirs = self.settings.qualified(subject), _theirs(schema)
        what = f"a new version of subject {subject}"
        found = self._ask(what, lambda client: client.register_schema(name, theirs))
        self._check(what, found)
        return int(found)

    def lookup(self, subject: str, schema: RegisteredSchema) -> Version:
        """Return the version of a subject that is this schema.

        Raises:
            UnknownSchemaError: there is none; and as `latest`.
        """
        name, theirs = self.settings.qualified(subject), _theirs(schema)
        what = f"a schema of subject {subject}"
        found = self._ask(what, lambda client: client.lookup_schema(name, theirs))
        self._check(what, found.version, found.schema_id)
        return Version(subject, found.version, found.schema_id, schema, found.guid)

    def close(self) -> None:
        """Close its connections; asked again, it opens others."""
        for client in self._clients.values():
            client.close()
            tokens = getattr(getattr(client, "_rest_client", None), "bearer_field_provider", None)
            session = getattr(tokens, "client", None)  # what requests tokens, which close() leaves open
            if session is not None:
                session.close()
        self._clients.clear()

    def _cached(
        self, name: str, what: str, ask: Callable[[SchemaRegistryClient], Any], context: str | None
    ) -> RegisteredSchema:
        """Return a schema from memory or the registry, or from earlier responses if that does not answer or lacks it.

        The registry takes precedence: a new one at the same address uses the same ids for other schemas.
        """
        kept = self._kept.get(name)
        if kept is not None:
            return kept
        on_disk = _from_document(self._disk.get(name))
        rounds = 1 if on_disk is not None else None
        try:
            found = self._with_references(what, self._ask(what, ask, rounds), context, rounds)
        except (UnreachableRegistryError, UnknownSchemaError) as error:
            # Deleted since: a batch that is read again after a crash must become the same rows and dead letters.
            if on_disk is None:
                raise
            _log.warning("%s. Here it is used as it was read before", error)
            found = on_disk
        if found != on_disk:
            self._disk.put(name, _document(found))
        if len(self._kept) >= MAX_KEPT:
            self._kept.clear()
        self._kept[name] = found
        return found

    def _with_references(
        self, what: str, found: Any, context: str | None, rounds: int | None = None
    ) -> RegisteredSchema:
        """Convert a schema of Confluent's, with all its references."""
        kind = found.schema_type or AVRO
        if not isinstance(found.schema_str, str) or not isinstance(kind, str):
            raise self._no_registry(what, "the answer has no schema")
        made: dict[str, Reference] = {}
        get = lambda each: self._reference(each, context, rounds)  # noqa: E731
        self._collect(found.references or (), get, made, ())
        direct = {each.name for each in found.references or ()}
        references = tuple(replace(each, direct=each.name in direct) for each in made.values())
        return RegisteredSchema(kind, found.schema_str, references)

    def _collect(
        self,
        references: Any,
        get: Callable[[Any], tuple[Reference, Any]],
        made: dict[str, Reference],
        above: tuple[str, ...],
    ) -> None:
        """Put the results of ``get`` for references, and theirs, into ``made``, dependencies first."""
        for each in references:
            if each.name in above:
                raise RegistryError(f"{self._where}: a schema refers to itself: {' -> '.join((*above, each.name))}")
            if len(made) + len(above) >= MAX_REFERENCES:
                raise RegistryError(f"{self._where}: a schema refers to more than {MAX_REFERENCES} others")
            if each.name not in made:
                reference, below = get(each)
                self._collect(below, get, made, (*above, each.name))
                made[each.name] = reference

    def _reference(self, each: Any, context: str | None, rounds: int | None) -> tuple[Reference, Any]:
        """Return the schema of a reference, and its own references; a name without a context is of ``context``."""
        in_context = each.subject if context is None or each.subject.startswith(":.") else f":{context}:{each.subject}"
        what = f"version {each.version} of subject {each.subject}"
        ask = lambda client: client.get_version(in_context, each.version, True)  # noqa: E731
        found = self._ask(what, ask, rounds).schema
        if not isinstance(found.schema_str, str):
            raise self._no_registry(what, "the answer has no schema")
        return Reference(each.name, each.subject, each.version, found.schema_str), found.references or ()

    def _ask(self, what: str, ask: Callable[[SchemaRegistryClient], Answer], rounds: int | None = None) -> Answer:
        """Ask each address in turn, and all of them again, until one answers."""
        pauses_s = growing(self.settings.wait_ms / 1000, self.settings.most_wait_ms / 1000, spread=(0, 1))
        again = self.settings.retries if rounds is None else rounds - 1
        return retry(lambda: self._ask_each(what, ask), UnreachableRegistryError, islice(pauses_s, again))

    def _ask_each(self, what: str, ask: Callable[[SchemaRegistryClient], Answer]) -> Answer:
        failure: RegistryError | None = None
        for url in tuple(self._urls):
            try:
                answer = self._ask_at(url, what, ask)
            except UnreachableRegistryError as error:
                failure = error
                continue
            if self._urls[0] != url:
                self._urls = [url, *(each for each in self._urls if each != url)]
            return answer
        assert failure is not None, "there is an address at least"
        raise failure

    def _ask_at(self, url: str, what: str, ask: Callable[[SchemaRegistryClient], Answer]) -> Answer:
        from confluent_kafka.schema_registry.error import OAuthTokenError, SchemaRegistryError

        client = self._client(url)
        client.clear_caches()  # its cache may be of an earlier registry
        try:
            return ask(client)
        except SchemaRegistryError as error:
            raise self._answered(what, error) from None
        except OAuthTokenError as error:
            raise UnreachableRegistryError(
                f"{self._where}, asked for {what}: {self.settings.issuer} returned no token for it "
                f"({self._hidden(error)}). Check {PREFIX}bearer.auth.*"
            ) from None
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            raise self._no_registry(what, self._hidden(error)) from None
        except Exception as error:  # of underlying libraries: no connection, no TLS
            raise UnreachableRegistryError(
                f"{self._where} does not answer, asked for {what} ({type(error).__name__}: {self._hidden(error)}). "
                f"Check {PREFIX}url, and whether it runs"
            ) from None

    def _client(self, url: str) -> SchemaRegistryClient:
        if url not in self._clients:
            try:
                from confluent_kafka.schema_registry import SchemaRegistryClient
            except ImportError as error:
                raise RegistryError(
                    f"option {PREFIX}url needs packages that are not installed ({error}): pip install "
                    "'sparkonce[registry]', on workers, too"
                ) from error
            try:
                # Another thread may have been faster: what it uses already stays the one that is closed in the end.
                self._clients.setdefault(url, SchemaRegistryClient(self.settings.client_conf(url)))
            except (OSError, ValueError) as error:
                raise RegistryError(f"{self._where}: its options do not work: {self._hidden(error)}") from None
        return self._clients[url]

    def _answered(self, what: str, error: Any) -> RegistryError:
        """Return the error for an answer that is one of HTTP's."""
        status, code = int(error.http_status_code), error.error_code
        told = f"{self._where}, asked for {what}: {self._hidden(error.error_message)} (HTTP {status})"
        if status in (401, 403):
            return RegistryLoginError(
                f"{told}. Check {PREFIX}basic.auth.*, {PREFIX}bearer.auth.* or {PREFIX}ssl.*, and this user's rights"
            )
        if status in _TEMPORARY:
            return UnreachableRegistryError(f"{told}. Try again later")
        if status == 404 and code in _NOT_FOUND:
            return UnknownSchemaError(told)
        if status in (404, 405) or code == -1 or not isinstance(code, int):
            return self._no_registry(what, f"HTTP {status}: {self._hidden(error.error_message)}")
        return RejectedSchemaError(told) if status in (409, 422) else RegistryError(told)

    def _no_registry(self, what: str, why: str) -> NotARegistryError:
        return NotARegistryError(
            f"{self._where}, asked for {what}, does not answer as a schema registry ({why}). Check host and path in "
            f"{PREFIX}url, such as http://host:8081, or http://host:8080/apis/ccompat/v7 for Apicurio's"
        )

    def _check(self, what: str, *numbers: object) -> None:
        if not all(isinstance(each, int) for each in numbers):
            raise self._no_registry(what, "the answer has no id or version")

    @property
    def _where(self) -> str:
        return f"schema registry {', '.join(self.settings.url or ())}"

    def _hidden(self, error: object) -> str:
        """Return a message without secrets, and no longer than `MAX_SHOWN`."""
        told = str(error)
        for secret in sorted(self.settings.secrets, key=len, reverse=True):
            told = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", HIDDEN, told)
        told = _TOKEN.sub(rf"\1 {HIDDEN}", without_secrets(told, {}))
        return told if len(told) <= MAX_SHOWN else f"{told[:MAX_SHOWN]}…"


_shared: dict[tuple[int, RegistrySettings], Registry] = {}


def shared_registry(settings: RegistrySettings) -> Registry:
    """Return this process' client of a registry; a forked child gets its own, as connections cannot be shared."""
    key = os.getpid(), settings
    found = _shared.get(key)
    return found if found is not None else _shared.setdefault(key, Registry(settings))


def close_registries() -> None:
    """Close the connections of this process' clients; the next request opens new ones."""
    for registry in _shared.values():
        registry.close()
    _shared.clear()


def _file_name(form: str, context: str | None, name: object) -> str:
    return f"{form}-{'' if context is None else f'{context.encode().hex()}-'}{name}"


def _document(schema: RegisteredSchema) -> list[Any]:
    references = [[each.name, each.subject, each.version, each.text, each.direct] for each in schema.references]
    return [schema.kind, schema.text, references]


def _from_document(document: Any) -> RegisteredSchema | None:
    """Return what `_document` made; None of a document of another version of this package."""
    try:
        kind, text, references = document
        return RegisteredSchema(kind, text, tuple(Reference(*each) for each in references))
    except (TypeError, ValueError):
        return None


def _theirs(schema: RegisteredSchema) -> Any:
    from confluent_kafka.schema_registry import Schema, SchemaReference

    references = [SchemaReference(each.name, each.subject, each.version) for each in schema.references if each.direct]
    return Schema(schema.text, schema.kind, references)

"""The version of a subject with which a batch is read, if a query follows a registry while it runs.

With ``schemaEvolution=add-columns`` the driver asks for the latest version when a batch begins, once, and the whole
batch uses the answer: its tasks and the committing process get it with the batch's plan, and the commit
records it (`BatchRecord.rules`).

Why no value loses a field: Spark has logged the end of a batch before the batch begins, so all its records were in the
topic before. The writer of a value had registered its schema before. So the latest version, requested afterwards, is
no older than that of any value in the batch. The argument needs a registry that returns what it has accepted, and
producers that register under the subject that is followed. So tasks check it: a value of a version that is newer than
the batch's stops the query before anything of the batch is written (`RegisteredValues`). They do not rely on the latest
version for it, which a replica that lags may answer, but ask where the value's schema is used.

Versions never go back: a deleted version, or an address of the registry that lags behind, would remove columns from
values that have them. So the version of the table's last commit is the minimum. If it has another id by now, or the id
another schema, the registry is a new one, and its versions are not those that the table was written with: that is
rejected. A new registry may well assign the same ids again, so commits also record a fingerprint of the
schema.

While the registry does not answer, a batch is read with the version of the last commit, or the query's initial one.
Then the argument does not hold, and only the check protects: values of that version itself need no registry, and any
other makes a task ask, and fail.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from dataclasses import dataclass

from sparkonce.connectors.schema_registry.client import (
    Registry,
    RegistryError,
    UnknownSchemaError,
    UnreachableRegistryError,
    Version,
    shared_registry,
)
from sparkonce.connectors.values.options import SchemaOptions
from sparkonce.connectors.values.registered import reader_schema, text_of
from sparkonce.connectors.values.rules import READ_AS, Rules

_ELSE = ", and stands for another schema"
_FINGERPRINT = "~"
_ID = re.compile(rf"([0-9]+)(?:{_FINGERPRINT}([0-9a-f]+))?", re.ASCII)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ReadAs:
    """The registry's schema with which values are read."""

    id: int
    version: int | None = None
    """None if only the id is known."""
    subject: str | None = None
    fingerprint: str | None = None
    """Of the schema; None if it was not recorded."""

    def is_other_than(self, text: str) -> bool:
        """Whether a schema differs, though it has the same id."""
        return self.fingerprint not in (None, fingerprint(text))

    @property
    def of_subject(self) -> tuple[str, int] | None:
        """The subject and the version, if they are known."""
        return None if self.version is None or self.subject is None else (self.subject, self.version)

    def __str__(self) -> str:
        return f"id {self.id}" if self.version is None else f"version {self.version} (id {self.id}) of {self.subject}"


def fingerprint(text: str) -> str:
    """Return a digest of a schema, independent of whitespace: 12 hexadecimal digits."""
    try:
        document = json.dumps(json.loads(text), sort_keys=True)
    except ValueError:  # Protobuf
        document = " ".join(text.split())
    return hashlib.sha256(document.encode()).hexdigest()[:12]


def rules_of(digest: str, decoding: object) -> str:
    """Return what makes rows and dead letters of records: a digest of options, and the schema that a registry has."""
    if not isinstance(decoding, SchemaOptions) or decoding.reader_id is None:
        return digest
    of_subject = () if decoding.version_of is None else (str(decoding.version_of[1]), decoding.version_of[0])
    number = f"{decoding.reader_id}{_FINGERPRINT}{fingerprint(decoding.reader)}"
    return str(Rules(digest, READ_AS.join((number, *of_subject))))


def split_rules(rules: str) -> tuple[str, ReadAs | None]:
    """Split the result of `rules_of`; no schema if there is none, or it has another form."""
    parsed = Rules.parse(rules)
    digest, parts = parsed.digest, parsed.read_as.split(READ_AS, 2)  # a subject may have any character
    first = _ID.fullmatch(parts[0])
    if first is None or len(parts) not in (1, 3):
        return digest, None
    number, noted = int(first[1]), first[2]
    if len(parts) == 1:
        return digest, ReadAs(number, fingerprint=noted)
    if not (parts[1].isascii() and parts[1].isdigit()):
        return digest, None
    return digest, ReadAs(number, int(parts[1]), parts[2], noted)


def begun_schema(decoding: SchemaOptions, read_as: ReadAs) -> str:
    """Return the schema that a batch began with. Raises RegistryError if the registry does not have or say it."""
    assert decoding.registry is not None
    found = reader_schema(decoding.registry, read_as.id, decoding.format)
    if read_as.is_other_than(found):
        raise RegistryError(
            f"dead letters of this batch were found with values read as {read_as}, and the registry has another schema "
            "of that id now, since it was set up anew. Connect the registry that it had until the batch is complete"
        )
    return found


def begun_version(decoding: SchemaOptions, read_as: ReadAs) -> tuple[str, int] | None:
    """Return the version that a batch began with; None if newer ones do not matter. Raises RegistryError."""
    subject = decoding.stop_for
    if subject is None or decoding.registry is None:
        return None
    if read_as.version is None:  # with schemaEvolution=restart only the id is recorded
        return subject, shared_registry(decoding.registry).version_number(subject, read_as.id)
    if read_as.subject != subject:
        return None
    try:
        found = _version(shared_registry(decoding.registry), subject, read_as.version)
    except UnreachableRegistryError:
        found = None  # then the schema comes from the local disk, as the id identified it before
    if found is not None and not _is_same(read_as, found, decoding):
        raise RegistryError(
            f"dead letters of this batch were found with values read as {read_as}, which the registry no longer has: "
            f"version {read_as.version} has the id {found.id} there{_ELSE if found.id == read_as.id else ''}. Connect "
            "the registry that it had until the batch is complete"
        )
    return read_as.of_subject


def version_of_batch(decoding: SchemaOptions, committed: str | None) -> ReadAs:
    """Return a batch's version; ``committed``: the table's last rules. Raises RegistryError, also if it is too old."""
    assert decoding.registry is not None
    assert decoding.stop_for is not None
    assert decoding.reader_id is not None
    registry, subject = shared_registry(decoding.registry), decoding.stop_for
    last = None if committed is None else split_rules(committed)[1]
    if last is not None and last.subject != subject:
        last = None  # versions of another subject, or of a time when the query did not follow one
    try:
        latest = registry.latest(subject)
    except UnreachableRegistryError as error:
        read_as = last or ReadAs(decoding.reader_id)
        _log.warning("%s. The batch is read as %s; values with another schema would make it fail", error, read_as)
        return read_as
    newest = ReadAs(latest.id, latest.version, subject)
    if last is None or last.version is None:
        return newest
    is_there = latest.version == last.version or (latest.id == last.id and latest.version > last.version)
    found = latest if is_there else _version(registry, subject, last.version)
    now = f"version {latest.version} (id {latest.id}) is the latest of it now"
    is_other = found is not None and not _is_same(last, found, decoding)
    if is_other or (found is None and latest.version < last.version):
        raise RegistryError(
            f"the table was last written with {last}, which the registry no longer has, and {now}"
            f"{_ELSE if is_other and found is not None and found.id == last.id else ''}: it would take columns away, "
            "or be another schema. Register the schema of the table again, or, if this is another registry on purpose, "
            "set schemaEvolution=none or restart for one run, which reads values as the latest version there is"
        )
    if latest.version < last.version:
        _log.warning("%s, and the table was last written with %s, which was deleted: values are read as it", now, last)
        return last
    return newest


def _is_same(noted: ReadAs, found: Version, decoding: SchemaOptions) -> bool:
    """Whether a registry still has the schema in a commit's record."""
    try:
        return found.id == noted.id and not noted.is_other_than(text_of(found.schema, decoding.format))
    except ValueError:  # of another format
        return False


def _version(registry: Registry, subject: str, version: int) -> Version | None:
    """Return a version, also one that was deleted; None if it was deleted for good, or was never there."""
    try:
        return registry.version(subject, version, deleted=True)
    except UnknownSchemaError:
        return None

"""The errors of the REST API: HTTP status, code, text (Confluent's documentation of its Registry API, "Errors")."""

from __future__ import annotations

from collections.abc import Sequence


class ApiError(Exception):
    """An error response."""

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message


def subject_not_found(subject: str) -> ApiError:
    """Return the error for a subject that has no versions."""
    return ApiError(404, 40401, f"Subject '{subject}' not found.")


def version_not_found(version: int | str) -> ApiError:
    """Return the error for a version that a subject does not have."""
    return ApiError(404, 40402, f"Version {version} not found.")


def subject_deleted(subject: str) -> ApiError:
    """Return the error for a subject that is already soft-deleted."""
    return ApiError(404, 40404, f"Subject '{subject}' was soft deleted. Set permanent=true to delete permanently")


def subject_not_deleted(subject: str) -> ApiError:
    """Return the error for a subject that must be soft-deleted first."""
    return ApiError(404, 40405, f"Subject '{subject}' was not deleted first before being permanently deleted")


def version_deleted(subject: str, version: int) -> ApiError:
    """Return the error for a version that is already soft-deleted."""
    told = f"Subject '{subject}' Version {version} was soft deleted. Set permanent=true to delete permanently"
    return ApiError(404, 40406, told)


def version_not_deleted(subject: str, version: int) -> ApiError:
    """Return the error for a version that must be soft-deleted first."""
    told = f"Subject '{subject}' Version {version} was not deleted first before being permanently deleted"
    return ApiError(404, 40407, told)


def schema_not_found(what: object = "") -> ApiError:
    """Return the error for an id, or a schema, that is not registered."""
    return ApiError(404, 40403, f"Schema {what} not found" if what != "" else "Schema not found")


def invalid_schema(why: str) -> ApiError:
    """Return the error for an invalid schema."""
    return ApiError(422, 42201, f"Invalid schema: {why}")


def invalid_version(version: str) -> ApiError:
    """Return the error for an invalid version."""
    return ApiError(
        422,
        42202,
        f"The specified version '{version}' is not a valid version id. Allowed values are between [1, 2^31-1] and the "
        'string "latest"',
    )


def invalid_subject(subject: str) -> ApiError:
    """Return the error for an invalid name of a subject."""
    return ApiError(422, 42208, f"The specified subject '{subject}' is not a valid name of one")


def reference_exists(subject: str, version: int, ids: Sequence[int]) -> ApiError:
    """Return the error for a version that others reference."""
    told = f"One or more references exist to the schema {{subject={subject},version={version}}}: ids {list(ids)}"
    return ApiError(422, 42206, told)


def not_permitted(why: str) -> ApiError:
    """Return the error for an operation that the mode of a subject forbids."""
    return ApiError(422, 42205, why)

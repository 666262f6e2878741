"""The REST API over a `RegistryService`, by Starlette. Source: Confluent's documentation of the Schema Registry API."""

from __future__ import annotations

import base64
import hmac
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any
from urllib.parse import unquote

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from sparkonce.registry_lite.compatibility import FORMATS
from sparkonce.registry_lite.compatibility.strict_json import strict_json
from sparkonce.registry_lite.errors import ApiError, schema_not_found, subject_not_found
from sparkonce.registry_lite.guard import MEDIA_TYPE, Guard
from sparkonce.registry_lite.service import EVERY_CONTEXT, RegistryService
from sparkonce.registry_lite.state import (
    DEFAULT_CONTEXT,
    Content,
    Document,
    Entry,
    context_named,
    context_of,
    qualified,
)

MAX_REQUEST_BYTES = 16 << 20
MAX_ID_DIGITS = 10


class Call:
    """One request: its path, query and body."""

    def __init__(self, service: RegistryService, request: Request, body: Document) -> None:
        self.service, self.body = service, body
        self.path, self.query = request.path_params, request.query_params

    def flag(self, name: str) -> bool:
        """Return whether the query has a flag."""
        return self.query.get(name, "false").lower() == "true"

    @property
    def context(self) -> str:
        """The context at the beginning of the path. Raises ApiError if the context's name is invalid."""
        return context_named(_decoded(self.path.get("context", DEFAULT_CONTEXT)))

    @property
    def subject(self) -> str:
        """The subject in the path, with its context."""
        return qualified(_decoded(self.path["subject"]), self.context)

    @property
    def scope(self) -> str | None:
        """The subject or the context in the path that a setting is for; None for all."""
        if "subject" in self.path:
            return self.subject
        return None if self.context == DEFAULT_CONTEXT else f":{self.context}:"

    @property
    def within(self) -> str:
        """A name in the context that ids belong to: the query's subject, or the path's context."""
        return qualified(self.query.get("subject", ""), self.context)

    @property
    def prefix(self) -> str:
        """The prefix of the names of listed subjects."""
        given = self.query.get("subjectPrefix", "" if "context" in self.path else EVERY_CONTEXT)
        return given if given == EVERY_CONTEXT else qualified(given, self.context)

    @property
    def number(self) -> int:
        """The id in the path. Raises ApiError if it is not a valid id."""
        text = str(self.path["id"])
        if not text.isascii() or not text.isdecimal() or len(text) > MAX_ID_DIGITS:
            raise schema_not_found(text[: MAX_ID_DIGITS + 1])
        return int(text)

    def page(self, found: Sequence[Any]) -> list[Any]:
        """Return the part of a list that the query requests. Raises ApiError if its bounds are not numbers."""
        try:
            offset, limit = int(self.query.get("offset", "0")), int(self.query.get("limit", "-1"))
        except ValueError:
            raise ApiError(422, 422, "offset and limit are numbers") from None
        return list(found[max(offset, 0) :][: limit if limit >= 0 else None])


Answer = Callable[[Call], Any]


class Text(str):
    """An answer that is a schema's text, unchanged."""

    __slots__ = ()


def _content(call: Call, subject: str, content: Content) -> Document:
    """Return a schema in the form of responses, in the format that the query requests."""
    made = {**content.document(), "guid": content.guid}
    if call.query.get("format") == "serialized":
        made["schema"] = call.service.serialized(subject, content)
    return made


def _entry(call: Call, entry: Entry) -> Document:
    return {**entry.document(), **_content(call, entry.subject, entry.content)}


def _found(call: Call) -> Entry:
    return call.service.entry(call.subject, call.path["version"], deleted=call.flag("deleted"))


def _subjects(call: Call) -> Any:
    only = call.flag("deletedOnly")
    return call.page(call.service.subjects(call.prefix, deleted=call.flag("deleted"), deleted_only=only))


def _versions(call: Call) -> Any:
    only = call.flag("deletedOnly")
    found = call.service.state.versions(call.subject, deleted=only or call.flag("deleted"))
    if not found:
        raise subject_not_found(call.subject)
    return call.page([each.version for each in found if each.deleted or not only])


def _version(call: Call) -> Any:
    return _entry(call, _found(call))


def _referenced_by(call: Call) -> Any:
    entry = call.service.entry(call.subject, call.path["version"], deleted=True)
    return call.page(call.service.state.referring(entry.subject, entry.version))


def _lookup(call: Call) -> Any:
    normalize = call.flag("normalize")
    return _entry(call, call.service.lookup(call.subject, call.body, deleted=call.flag("deleted"), normalize=normalize))


def _known(call: Call) -> Any:
    """Answer a registration that changes nothing; None for others."""
    entry = call.service.known(call.subject, call.body, normalize=call.flag("normalize"))
    return None if entry is None else entry.document()


def _register(call: Call) -> Any:
    return call.service.register(call.subject, call.body, normalize=call.flag("normalize")).document()


def _delete_version(call: Call) -> Any:
    return call.service.delete_version(call.subject, call.path["version"], permanent=call.flag("permanent"))


def _delete_subject(call: Call) -> Any:
    return call.service.delete_subject(call.subject, permanent=call.flag("permanent"))


def _schema(call: Call) -> Any:
    made = _content(call, call.within, call.service.content(call.number, call.within))
    if call.flag("fetchMaxId"):
        made["maxId"] = call.service.state.last_ids.get(context_of(call.within), 0)
    return made


def _used_by(call: Call) -> list[tuple[str, int]]:
    call.service.content(call.number, call.within)
    entries = call.service.state.entries(context_of(call.within))
    wanted = [each for each in entries if each.id == call.number and (call.flag("deleted") or not each.deleted)]
    return call.page([(each.subject, each.version) for each in wanted])


def _schema_versions(call: Call) -> Any:
    return [{"subject": subject, "version": version} for subject, version in _used_by(call)]


def _guid(call: Call) -> Any:
    entry = call.service.with_guid(call.path["guid"])
    return _content(call, entry.subject, entry.content)


def _guid_ids(call: Call) -> Any:
    content = call.service.with_guid(call.path["guid"]).content
    found = {(context_of(each.subject), each.id) for each in call.service.state.entries() if each.content == content}
    return [{"context": context, "id": number} for context, number in sorted(found)]


def _schemas(call: Call) -> Any:
    latest, deleted = call.flag("latestOnly"), call.flag("deleted")
    found: list[Entry] = []
    for subject in call.service.subjects(call.prefix, deleted=deleted):
        versions = call.service.state.versions(subject, deleted=deleted)
        found += versions[-1:] if latest else versions
    return [each.document() for each in call.page(found)]


def _contexts(call: Call) -> Any:
    return call.page(sorted({DEFAULT_CONTEXT, *(context_of(subject) for subject in call.service.state.subjects)}))


def _compatible(call: Call) -> Any:
    problems = call.service.compatible(call.subject, call.body, call.path.get("version"))
    return {"is_compatible": not problems, **({"messages": problems} if call.flag("verbose") else {})}


def _get_config(call: Call) -> Any:
    return call.service.config(call.scope, default_to_global=call.flag("defaultToGlobal"))


def _put_config(call: Call) -> Any:
    return call.service.set_config(call.scope, call.body)


def _delete_config(call: Call) -> Any:
    return call.service.delete_config(call.scope)


def _get_mode(call: Call) -> Any:
    return {"mode": call.service.mode(call.scope, default_to_global=call.flag("defaultToGlobal"))}


def _put_mode(call: Call) -> Any:
    return {"mode": call.service.set_mode(call.scope, str(call.body.get("mode")), force=call.flag("force"))}


def _delete_mode(call: Call) -> Any:
    return {"mode": call.service.delete_mode(call.scope)}


_ROUTES: tuple[tuple[str, str, Answer], ...] = (
    ("GET", "/", lambda _: {}),
    ("GET", "/subjects", _subjects),
    ("GET", "/subjects/{subject}/versions", _versions),
    ("POST", "/subjects/{subject}/versions", _register),
    ("GET", "/subjects/{subject}/versions/{version}", _version),
    ("DELETE", "/subjects/{subject}/versions/{version}", _delete_version),
    ("GET", "/subjects/{subject}/versions/{version}/schema", lambda call: Text(_version(call)["schema"])),
    ("GET", "/subjects/{subject}/versions/{version}/referencedby", _referenced_by),
    ("POST", "/subjects/{subject}", _lookup),
    ("DELETE", "/subjects/{subject}", _delete_subject),
    ("GET", "/schemas", _schemas),
    ("GET", "/schemas/types", lambda _: list(FORMATS)),
    ("GET", "/schemas/ids/{id}", _schema),
    ("GET", "/schemas/ids/{id}/schema", lambda call: Text(_schema(call)["schema"])),
    ("GET", "/schemas/ids/{id}/subjects", lambda call: sorted({subject for subject, _ in _used_by(call)})),
    ("GET", "/schemas/ids/{id}/versions", _schema_versions),
    ("GET", "/schemas/guids/{guid}", _guid),
    ("GET", "/schemas/guids/{guid}/ids", _guid_ids),
    ("GET", "/contexts", _contexts),
    ("POST", "/compatibility/subjects/{subject}/versions", _compatible),
    ("POST", "/compatibility/subjects/{subject}/versions/{version}", _compatible),
    ("GET", "/config", _get_config),
    ("PUT", "/config", _put_config),
    ("DELETE", "/config", _delete_config),
    ("GET", "/config/{subject}", _get_config),
    ("PUT", "/config/{subject}", _put_config),
    ("DELETE", "/config/{subject}", _delete_config),
    ("GET", "/mode", _get_mode),
    ("PUT", "/mode", _put_mode),
    ("GET", "/mode/{subject}", _get_mode),
    ("PUT", "/mode/{subject}", _put_mode),
    ("DELETE", "/mode", _delete_mode),
    ("DELETE", "/mode/{subject}", _delete_mode),
)


_CHANGES = (_register, _delete_version, _delete_subject, _put_config, _delete_config, _put_mode, _delete_mode)
_SLASH = "\ue000"
"""Replaces a slash in a name while paths are matched."""


def make_app(
    service: RegistryService, user_info: str | None = None, *, names: Collection[str] = (), any_host: bool = False
) -> ASGIApp:
    """Return the application.

    Args:
        service: the registry.
        user_info: ``user:password``, if clients must log in by basic authentication.
        names: the names by which clients call it, besides those of loopback.
        any_host: whether they may use other names, too.
    """
    routes = [
        Route(prefix + path, _endpoint(service, answer), methods=[method])
        for prefix in ("", "/contexts/{context}")
        for method, path, answer in _ROUTES
    ]
    middleware = [Middleware(Guard, names=names, any_host=any_host)]
    if user_info is not None:
        middleware.append(Middleware(BasicAuthentication, user_info=user_info))
    middleware.append(Middleware(SlashesInNames))
    return Starlette(
        routes=routes,
        middleware=middleware,
        exception_handlers={HTTPException: _not_found, Exception: _failed},
    )


def _endpoint(service: RegistryService, answer: Answer) -> Callable[[Request], Awaitable[Response]]:
    def run(request: Request, body: Document) -> Any:
        call = Call(service, request, body)
        if answer not in _CHANGES:
            with service.reading:
                return answer(call)
        if answer is _register:  # most change nothing, and need not wait for those that do
            with service.reading:
                known = _known(call)
            if known is not None:
                return known
        with service.changing():
            return answer(call)

    async def endpoint(request: Request) -> Response:
        try:
            found = await run_in_threadpool(run, request, await _body(request))
        except ApiError as error:
            return _json({"error_code": error.code, "message": error.message}, error.status)
        return Response(str(found), media_type=MEDIA_TYPE) if isinstance(found, Text) else _json(found)

    return endpoint


async def _body(request: Request) -> Document:
    content = b""
    async for chunk in request.stream():
        content += chunk
        if len(content) > MAX_REQUEST_BYTES:
            raise ApiError(413, 413, f"A request has at most {MAX_REQUEST_BYTES} bytes")
    if not content:
        return {}
    try:
        document = strict_json(content)
    except (ValueError, RecursionError):
        raise ApiError(400, 400, "The request is not JSON") from None
    if not isinstance(document, dict):
        raise ApiError(400, 400, "The request is not an object of JSON")
    return document


def _json(document: Any, status: int = 200) -> Response:
    return JSONResponse(document, status, media_type=MEDIA_TYPE)


def _not_found(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _json(
        {"error_code": error.status_code, "message": f"HTTP {error.status_code} {error.detail}"}, error.status_code
    )


def _failed(_: Request, error: Exception) -> Response:
    return _json({"error_code": 500, "message": f"Internal Server Error: {type(error).__name__}"}, 500)


def _decoded(name: str) -> str:
    return name.replace(_SLASH, "/")


class SlashesInNames:
    """Distinguishes the slashes of a name, written ``%2F``, from those of the path."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on (ASGI)."""
        if scope["type"] == "http":
            parts = scope["raw_path"].decode("latin-1").replace("%2f", "%2F").split("%2F")
            scope = {**scope, "path": _SLASH.join(map(unquote, parts))}
        await self._app(scope, receive, send)


class BasicAuthentication:
    """Rejects requests without the user's name and password."""

    def __init__(self, app: ASGIApp, user_info: str) -> None:
        self._app = app
        self._expected = b"Basic " + base64.b64encode(user_info.encode())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or reject it (ASGI)."""
        given = dict(scope.get("headers", ())).get(b"authorization", b"")
        if scope["type"] == "http" and not hmac.compare_digest(given, self._expected):
            await _json({"error_code": 401, "message": "Unauthorized"}, 401)(scope, receive, send)
        else:
            await self._app(scope, receive, send)

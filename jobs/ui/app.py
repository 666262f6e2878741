"""The routes: pages, their changes as server-sent events, their forms, and the files in `static/`."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Sequence
from contextlib import aclosing
from functools import partial
from pathlib import Path
from urllib.parse import parse_qsl

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from sparkonce.connectors.kafka_source.decode import CorruptBatchError
from sparkonce.connectors.schema_registry.client import RegistryError
from sparkonce.jobs.ui.following import Following, TooManyError
from sparkonce.jobs.ui.guard import Guard
from sparkonce.jobs.ui.kafka.loop import PROBLEMS as BROKER_PROBLEMS
from sparkonce.jobs.ui.page import NoSuchThingError, Page, PageRequest, Proposal, RefusedError
from sparkonce.jobs.ui.rendering import Rendered, document, render
from sparkonce.jobs.ui.site import Site

PROBLEMS = (*BROKER_PROBLEMS, CorruptBatchError, RegistryError, ValueError)
"""Errors of reading a page's data: the error is shown instead, and the page is read again."""
LIVE = "live"
"""The query parameter that requests changes: the digest of what is shown."""
MAX_FORM_BYTES = 1 << 20

_log = logging.getLogger(__name__)


class App:
    """The application; ``pages`` are in the order of the navigation."""

    def __init__(self, pages: Sequence[Page], site: Site) -> None:
        self._pages = pages
        self._site = site
        self._mistake = ""
        self.following = Following()

    def guarded(self, hosts: Collection[str], token: str | None) -> Starlette:
        """Return the application with its guard around it."""
        routes: list[BaseRoute] = [Route("/", self._first)]
        for page in self._pages:
            routes.append(Route(page.path, self._getting(page), methods=["GET"]))
            if page.actions:
                routes.append(Route(page.path, self._acting(page), methods=["POST"]))
        routes.append(Mount("/static", StaticFiles(directory=Path(__file__).parent / "static")))
        return Starlette(
            routes=routes,
            middleware=[Middleware(Guard, hosts=hosts, token=token)],
            exception_handlers={HTTPException: self._failed, Exception: _broken},
        )

    async def _first(self, _: Request) -> Response:
        given = self._site.given
        return RedirectResponse("/pipelines" if given.tables or given.checkpoints or given.folder else "/topics")

    def _getting(self, page: Page) -> Callable[[Request], Awaitable[Response]]:
        async def get(request: Request) -> Response:
            asked = _asked(request)
            look = partial(self._look, page, asked)
            if LIVE not in request.query_params:
                return self._document(page, asked, await run_in_threadpool(look))
            has = request.headers.get("last-event-id", request.query_params[LIVE])
            name = request.scope["path"], tuple(sorted(asked.query.items()))
            events = self.following.follow(name, has, look, page.interval_s)
            try:
                first = await anext(events)
            except TooManyError as error:
                return PlainTextResponse(f"sparkonce ui: {error}\n", 503)
            return StreamingResponse(_chained(first, events), media_type="text/event-stream")

        return get

    def _acting(self, page: Page) -> Callable[[Request], Awaitable[Response]]:
        async def act(request: Request) -> Response:
            form = await _form(request)
            action = page.actions.get(form.pop("action", ""))
            if action is None:
                raise HTTPException(400, "the form has no action that this page knows")
            asked, refused = _asked(request), False
            said: str | Proposal
            try:
                said = await run_in_threadpool(action, self._site, asked, form)
            except (NoSuchThingError, RefusedError) as error:
                said, refused = str(error), True
            except PROBLEMS as error:
                said, refused = _described(error), True
            rendered = await run_in_threadpool(self._look, page, asked)
            return self._document(page, asked, rendered, said=said, refused=refused)

        return act

    def _look(self, page: Page, asked: PageRequest) -> Rendered:
        """Read a page's data and render it, or the error."""
        try:
            data = {"site": self._site, "asked": asked, "page": page, **page.data(self._site, asked)}
            return render(page.template, data)
        except NoSuchThingError as error:
            return render("problem.html", {"title": page.title, "problem": str(error), "is_stale": False}, 404)
        except PROBLEMS as error:
            _log.info("%s cannot be read: %s", page.path, type(error).__name__)
            return render("problem.html", {"title": page.title, "problem": _described(error), "is_stale": True})
        except Exception as error:
            if self._mistake != repr(error):  # a followed page repeats it
                self._mistake = repr(error)
                _log.exception("%s: a mistake of ours", page.path)
            words = f"a mistake of ours, {type(error).__name__}: the log of sparkonce ui has more"
            return render("problem.html", {"title": page.title, "problem": words, "is_stale": True}, 500)

    def _document(
        self,
        page: Page | None,
        asked: PageRequest,
        rendered: Rendered,
        said: str | Proposal = "",
        refused: bool = False,
    ) -> Response:
        content = document(
            pages=[each for each in self._pages if each.menu is not None],
            current=None if page is None else "/" + page.path.split("/")[1],
            title=_title(page, asked),
            main=rendered.whole,
            digest=rendered.digest,
            said=said.words if isinstance(said, Proposal) else said,
            proposal=said if isinstance(said, Proposal) and said.action else None,
            refused=refused,
            follows=page is not None,
        )
        return HTMLResponse(content, 422 if refused else rendered.status)

    async def _failed(self, _: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        words = "There is no such page." if error.status_code == 404 else f"{error.detail}."
        rendered = render(
            "problem.html", {"title": "sparkonce", "problem": words, "is_stale": False}, error.status_code
        )
        return self._document(None, PageRequest(), rendered)


async def _broken(_: Request, error: Exception) -> Response:
    return PlainTextResponse(f"sparkonce ui: a mistake of ours, {type(error).__name__}; its log has more\n", 500)


async def _chained(first: str, events: AsyncGenerator[str]) -> AsyncGenerator[str]:
    async with aclosing(events):
        yield first
        async for each in events:
            yield each


def _asked(request: Request) -> PageRequest:
    query = {name: value for name, value in request.query_params.items() if name != LIVE}
    return PageRequest({name: str(value) for name, value in request.path_params.items()}, query)


async def _form(request: Request) -> dict[str, str]:
    content = b""
    async for chunk in request.stream():
        content += chunk
        if len(content) > MAX_FORM_BYTES:
            raise HTTPException(413, "the form is too large")
    return dict(parse_qsl(content.decode("utf-8", "replace"), keep_blank_values=True))


def _title(page: Page | None, asked: PageRequest) -> str:
    return "sparkonce" if page is None else " · ".join([*asked.path.values(), page.title, "sparkonce"])


def _described(error: Exception) -> str:
    return str(error) or type(error).__name__

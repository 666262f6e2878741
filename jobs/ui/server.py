"""The pages as a server in a thread, from construction to `close`.

with UiServer(Site(Given(kafka={"kafka.bootstrap.servers": "localhost:9092"}))) as ui:
    print(ui.url)
"""

from __future__ import annotations

import secrets
import socket
import threading
from collections.abc import Sequence
from types import TracebackType

import uvicorn

from sparkonce.http_hosts import LOOPBACK, is_loopback
from sparkonce.jobs.ui.app import App
from sparkonce.jobs.ui.page import Page
from sparkonce.jobs.ui.pages.all import PAGES
from sparkonce.jobs.ui.site import Site

STOP_TIMEOUT_S = 10.0


class UiStartError(RuntimeError):
    """It cannot listen; the message says why."""


class UiServer:
    """Serves the pages; a context manager."""

    def __init__(
        self,
        site: Site,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        names: Sequence[str] = (),
        token: str | None = None,
        pages: Sequence[Page] = PAGES,
    ) -> None:
        """``names`` are further ones by which browsers may address it. Raises UiStartError if it cannot listen."""
        if token is None and not is_loopback(host):
            token = secrets.token_urlsafe()
        self._socket = _listen(host, port)
        port = int(self._socket.getsockname()[1])
        shown = _called(host)
        self._app = App(pages, site)
        config = uvicorn.Config(
            self._app.guarded([*LOOPBACK, shown, *names], token),
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [self._socket]}, name="ui", daemon=True
        )
        self._thread.start()
        self.url = f"http://{f'[{shown}]' if ':' in shown else shown}:{port}/"
        """Its address; requests are answered from now on."""
        self.entrance = self.url if token is None else f"{self.url}?token={token}"
        """The address to open first, with the token if there is one."""

    def close(self) -> None:
        """Stop it."""
        self._app.following.stop()
        self._server.should_exit = True
        self._thread.join(STOP_TIMEOUT_S)
        self._socket.close()

    def __enter__(self) -> UiServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _called(host: str) -> str:
    """Return the name by which browsers reach a server on ``host``."""
    return socket.gethostname() if host in ("0.0.0.0", "::") else host  # noqa: S104 - compared, not bound


def _listen(host: str, port: int) -> socket.socket:
    made = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, port))
        made.listen(128)
    except OSError as error:
        made.close()
        raise UiStartError(
            f"cannot listen on {host}:{port}: {error.strerror or error}; name others with --host, --port"
        ) from None
    return made

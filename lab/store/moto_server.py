"""An S3 store by moto, in a separate process: run by `lab.store.s3.MotoStore`.

Not a thread of the caller: delta-rs holds the GIL while it opens a file, so the two would wait for each other.

moto checks ``If-None-Match: *`` and stores the object in two steps, between which another thread may store one. A lock
around each request that changes something makes it atomic, as S3 promises for conditional writes.
"""

from __future__ import annotations

import logging
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import make_server

from lab.child_process import event_writer
from lab.store.s3 import BUCKET

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

_READS = frozenset({"GET", "HEAD"})


class OneWriteAtATime:
    """A WSGI application that handles one change at a time."""

    def __init__(self, application: Callable[..., Iterable[bytes]]) -> None:
        self._application = application
        self._lock = threading.Lock()

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Handle a request."""
        if environ["REQUEST_METHOD"] in _READS:
            return self._application(environ, start_response)
        with self._lock:
            return list(self._application(environ, start_response))


def main() -> None:
    """Serve on a free port of the loopback address until the standard input ends."""
    tell = event_writer()
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    application: Any = OneWriteAtATime(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, application, threaded=True, request_handler=MotoRequestHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    request = urllib.request.Request(f"{address}/{BUCKET}", method="PUT")  # noqa: S310
    urllib.request.urlopen(request).close()  # noqa: S310
    tell(ready=address)
    sys.stdin.read()
    server.shutdown()


if __name__ == "__main__":
    main()

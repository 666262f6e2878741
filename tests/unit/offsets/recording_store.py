"""A server that records requests and knows no file: what libraries send for an option is compared."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_LISTINGS = {
    "list-type=2": b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>",
    "comp=list": b"<EnumerationResults><Blobs></Blobs></EnumerationResults>",
}
_OF_ITS_TIME = re.compile(r"Signature=\w+|(?<=:)[\w+/]{43}=|\b[0-9a-f]{64}\b")
_UNLIKE = frozenset({"content-length", "date", "x-amz-checksum-sha256", "x-amz-date", "x-ms-date", "x-ms-version"})
"""Headers that differ between two requests of one meaning."""


@dataclass
class Recorded:
    """The requests so far."""

    address: str
    status: int = 0
    """What to answer; 0: that no file is there."""
    requests: list[tuple[str, str, Mapping[str, str]]] = field(default_factory=list)

    def take(self, method: str) -> list[tuple[str, Mapping[str, str]]]:
        """Return path and headers of the requests of this method, without their time and content; forget all."""
        found = [(path, headers) for each, path, headers in self.requests if each == method]
        self.requests.clear()
        return [(path, {name: _plain(name, value) for name, value in headers.items()}) for path, headers in found]


def _plain(name: str, value: str) -> str:
    if name in _UNLIKE or (name == "user-agent" and value.startswith("object_store/")):
        return "…"
    return _OF_ITS_TIME.sub("…", value)


@contextmanager
def recording_store() -> Iterator[Recorded]:
    """Serve on a free port of the loopback address."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # headers and body are two writes: else clients acknowledge late

        def _answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            recorded.requests.append(
                (self.command, self.path, {name.lower(): value for name, value in self.headers.items()})
            )
            body = next((listing for words, listing in _LISTINGS.items() if words in self.path), b"")
            self.send_response(recorded.status or (200 if body or self.command in ("PUT", "DELETE") else 404))
            body = b"" if recorded.status else body
            self.send_header("Content-Length", str(len(body)))
            self.send_header("ETag", '"tag"')
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _answer  # noqa: N815

        def log_message(self, *_: object) -> None:
            """Do not log."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    recorded = Recorded(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield recorded
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

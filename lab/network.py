"""A TCP proxy in front of a server, with which its clients' network can be broken.

Each connection has two threads that copy bytes. While the proxy is cut, open connections are closed, and new ones at
once; while it stalls, nothing is copied, and nobody gets an error. Connections opened by the server bypass it:
a broker that clients cannot reach still reaches the other brokers.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Self

_BYTES = 65536


def free_port() -> int:
    """Return a port without a listener, for a server that is about to start.

    For a minute the system assigns it to no other process, as the closed connection is in TIME_WAIT. A server that
    sets SO_REUSEADDR, as Java's and asyncio's do, can listen on it.
    """
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = int(server.getsockname()[1])
        with socket.create_connection(("127.0.0.1", port)):
            server.accept()[0].close()
        return port


class Proxy:
    """Listens in place of one server, from construction to `close`; a context manager.

    ``target_port`` None: the server will listen on the proxy's own port, at another loopback address.
    """

    def __init__(self, target_port: int | None, host: str = "127.0.0.1", target_host: str = "127.0.0.1") -> None:
        self._listening = socket.create_server((host, 0))
        self.port = int(self._listening.getsockname()[1])
        self._target = (target_host, self.port if target_port is None else target_port)
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._flowing = threading.Event()
        self._flowing.set()
        self._cut = self._closed = False
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def cut(self) -> None:
        """Close open connections, and refuse new ones."""
        with self._lock:
            self._cut = True
        self._close_all()

    def stall(self) -> None:
        """Stop copying bytes; connections stay open."""
        self._flowing.clear()

    def heal(self) -> None:
        """Copy again; waiting bytes go first."""
        with self._lock:
            self._cut = False
        self._flowing.set()

    def close(self) -> None:
        """End it, and wait for its threads."""
        with self._lock:
            self._closed = True
        self._flowing.set()
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._close_all()
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(self._target)
            except OSError:
                client.close()
                continue
            with self._lock:
                refused = self._cut or self._closed
                if not refused:
                    self._open |= {client, server}
            if refused:
                client.close()
                server.close()
                continue
            for source, sink in ((client, server), (server, client)):
                thread = threading.Thread(target=self._copy, args=(source, sink))
                self._threads.append(thread)
                thread.start()

    def _copy(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(_BYTES):
                self._flowing.wait()
                sink.sendall(data)
        except OSError:
            pass
        finally:
            for each in (source, sink):
                self._end(each)

    def _close_all(self) -> None:
        with self._lock:
            open_now = list(self._open)
        for each in open_now:
            self._end(each)

    def _end(self, connection: socket.socket) -> None:
        with self._lock:
            self._open.discard(connection)
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)  # wakes the thread that reads from it, as closing would not
        connection.close()

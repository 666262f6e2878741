"""Stands in for a Python process that the fork server runs: sends it the command, waits, and exits with its status.

Run by ``worker_python.sh`` with ``-I -S``, so it imports nothing but the standard library, and starts in 20 ms. If the
server is gone or declines, this process becomes the interpreter itself. See `sparkonce.connectors.runtime.fork_server`.
"""

from __future__ import annotations

import json
import os
import socket
import sys

SOCKET = "SPARKONCE_FORK_SERVER"
"""The variable that names the server's socket; empty where no server is wanted."""
INTERPRETER = "SPARKONCE_PYTHON"
ACCEPTED = b"+"


def main() -> None:
    """Ask the server; or become the interpreter."""
    arguments = sys.argv[1:]
    code = _run(arguments)
    if code is None:
        python = os.environ[INTERPRETER]
        os.execv(python, [python, *arguments])  # noqa: S606 - no shell is wanted
    os._exit(code)


def _run(arguments: list[str]) -> int | None:
    """Return the exit code of the process that the server has forked, None if it forks none."""
    request = json.dumps({"arguments": arguments, "folder": os.getcwd(), "environment": dict(os.environ)}).encode()
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.connect(os.environ[SOCKET])
            socket.send_fds(server, [len(request).to_bytes(4, "big")], [0, 1, 2])
            server.sendall(request)
            if server.recv(1) != ACCEPTED:
                return None
            for standard in (0, 1, 2):
                os.close(standard)  # now only the process itself has them, so that its end is noticed
            return (server.recv(1) or b"\x01")[0]
    except OSError:
        return None


if __name__ == "__main__":
    main()

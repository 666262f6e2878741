"""A process that has loaded what Spark's Python processes need, and forks them when Spark starts them.

A session of Spark starts half a dozen Python processes before its first batch is written, and one more to plan in for
each query; each spends half a second to a second on the same imports. `start` lets a process fork them that imports
once, while the JVM starts: the script by which Spark starts Python (`worker_python`) then runs `fork_client`,
which passes its standard streams, command and environment to the server and waits for the end of the forked process.

A forked process must equal a new one, otherwise it is not forked: all that an interpreter or a library reads when
it is loaded, such as ``PYTHONPATH``, the locale, or the current directory, must be as in the server; if not, the client
becomes an interpreter itself. What `worker_daemon` says about threads, allocators and random numbers applies here,
too: with a second thread after the imports, nothing is forked.

The server ends with the driver's process, which holds the other end of its standard input. A client that is killed
takes its process along, since Spark ends Python processes by killing what it has started.
"""

from __future__ import annotations

import json
import os
import re
import runpy
import selectors
import signal
import socket
import sys
import uuid
from collections.abc import Callable, Mapping, MutableMapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from sparkonce.connectors.runtime.fork_client import ACCEPTED, SOCKET
from sparkonce.connectors.runtime.worker_daemon import PRELOADED, preload, prepare_to_fork
from sparkonce.private_folder import private_folder

MODULE = "sparkonce.connectors.runtime.fork_server"
PLANNING = (
    "pyspark.daemon",
    "pyspark.sql.streaming.python_streaming_source_runner",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.python_streaming_sink_runner",
    "sparkonce.connectors.formats.kafka_once",
    "sparkonce.connectors.kafka_source.planner",
)
"""What the processes on the driver import, besides what tasks do."""
AS_SPARK_STARTS_PYTHON = {"PYTHONHASHSEED": "0", "PYTHONUNBUFFERED": "YES", "OMP_NUM_THREADS": "1"}
"""The last for workers only; numpy's threads are useless for the others, and would forbid forking."""
_OPTIONAL = "OMP_NUM_THREADS"
_READ_WHEN_LOADED = re.compile(
    r"PYTHON(?!_(?:DAEMON|FAULTHANDLER|TRACEBACK|UDF|UNIX|WORKER)_)|LD_|LC_|LANG|TZ$|GLIBC_|MALLOC_|JE_|_RJEM_|MIMALLOC_"
    r"|ARROW_|NUMBA_|NPY_|OMP_|KMP_|MKL_|OPENBLAS_|RUST_|OPENSSL_|SPARKONCE_"
)
"""Variables read when an interpreter starts or a library is loaded; Spark's own for each process are not among them."""
_PATH = "PYTHONPATH"
_REQUEST_S = 10
"""The time limit for a client's request, in seconds; it is sent at once."""
_MAX_REQUEST_BYTES = 1 << 24

_lifelines: list[int] = []
"""The ends of pipes that this process holds open for its servers, until it ends."""


def start(environment: MutableMapping[str, str]) -> None:
    """Start a server for the JVM that this process is about to start, with the JVM's ``environment``.

    Does nothing if this process has one, if the variable ``SPARKONCE_FORK_SERVER`` is empty, without /proc, or if the
    system refuses: Spark starts its processes one by one then.
    """
    if _lifelines or environment.get(SOCKET) == "" or not os.path.isdir("/proc/self/task"):
        return
    folder = private_folder("sparkonce-fork")
    if folder is None:
        return
    with suppress(OSError):
        _sweep(folder)
        environment[SOCKET] = str(folder / f"{os.getpid()}-{uuid.uuid4().hex[:8]}.socket")
        theirs, ours = os.pipe()
        _lifelines.append(ours)
        try:
            _spawn(environment[SOCKET], theirs, environment)
        finally:
            os.close(theirs)


def _sweep(folder: Path) -> None:
    """Remove the sockets of killed servers: nobody listens there."""
    for path in folder.glob("*.socket"):
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(1)
            try:
                client.connect(str(path))
            except ConnectionRefusedError:
                path.unlink(missing_ok=True)
            except OSError:
                continue  # it is busy, or has just ended


def _spawn(path: str, lifeline: int, environment: Mapping[str, str]) -> None:
    os.posix_spawn(
        sys.executable,
        [sys.executable, "-m", MODULE, path],
        {**environment, **AS_SPARK_STARTS_PYTHON},
        file_actions=[(os.POSIX_SPAWN_DUP2, lifeline, 0), (os.POSIX_SPAWN_DUP2, 2, 1)],
    )


@dataclass(frozen=True, slots=True)
class Request:
    """What a client wants to run: ``-m MODULE`` and its arguments, where, and with which variables."""

    arguments: list[str]
    folder: str
    environment: dict[str, str]


def fixed(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that a running process cannot change; of a path, its contents."""
    found = {name: text for name, text in environment.items() if _READ_WHEN_LOADED.match(name)}
    found[_PATH] = os.pathsep.join(dict.fromkeys(entry for entry in found.get(_PATH, "").split(os.pathsep) if entry))
    return found


class ForkServer:
    """Forks processes for its clients until the driver ends."""

    def __init__(self, listener: socket.socket, lifeline: int, environment: Mapping[str, str]) -> None:
        """``environment`` is that of the interpreter's start; ``lifeline`` the descriptor whose end is the driver's."""
        self._listener, self._lifeline = listener, lifeline
        self._fixed, self._folder = fixed(environment), os.getcwd()
        self._selector = selectors.DefaultSelector()
        self._running: dict[int, tuple[int, socket.socket]] = {}
        """By process id: the descriptor that signals its end, and its client."""
        self._watch(listener, self._accept)
        self._watch(lifeline, self._stop)

    def serve(self) -> Request | None:
        """Serve; return in a forked process the request to run, and None in this one at the end."""
        while self._selector.get_map():
            for key, _ in self._selector.select():
                if key.fd in self._selector.get_map():  # another event of this round may have removed it
                    request: Request | None = key.data()
                    if request is not None:
                        return request
        return None

    def _watch(self, what: socket.socket | int, call: Callable[[], Request | None]) -> None:
        self._selector.register(what, selectors.EVENT_READ, call)

    def _stop(self) -> None:
        """Accept no more clients: the driver has ended. Running processes end by themselves."""
        for each in (self._listener, self._lifeline):
            self._selector.unregister(each)
        self._listener.close()

    def _accept(self) -> Request | None:
        client, _ = self._listener.accept()
        streams: list[int] = []
        request, process = None, None
        with suppress(OSError, ValueError, TypeError):  # the client continues without the server
            client.settimeout(_REQUEST_S)
            request = _receive(client, streams)
            process = os.fork() if self._may_fork(request) else None
        if process == 0:
            self._leave(client)
            for number, stream in enumerate(streams):
                os.dup2(stream, number)
        for stream in streams:
            os.close(stream)
        if process == 0:
            return request
        if process is None:
            client.close()
        else:
            self._follow(process, client)
        return None

    def _may_fork(self, request: Request) -> bool:
        wanted = {_OPTIONAL: self._fixed[_OPTIONAL], **fixed(request.environment)}
        is_module = len(request.arguments) > 1 and request.arguments[0] == "-m"
        return is_module and request.folder == self._folder and wanted == self._fixed

    def _follow(self, process: int, client: socket.socket) -> None:
        """Wait for the end of a process, and of its client."""
        ended = os.pidfd_open(process)
        with suppress(OSError):  # a client that has ended meanwhile is noticed later
            client.sendall(ACCEPTED)
        self._running[process] = (ended, client)
        self._watch(ended, lambda: self._report(process))
        self._watch(client, lambda: self._abandoned(process))

    def _leave(self, client: socket.socket) -> None:
        """Close the server's descriptors in a forked process."""
        self._selector.close()
        self._listener.close()
        os.close(self._lifeline)
        client.close()
        for ended, other in self._running.values():
            os.close(ended)
            other.close()

    def _report(self, process: int) -> None:
        """Report a process's exit status to its client."""
        ended, client = self._running.pop(process)
        _, status = os.waitpid(process, 0)
        code = os.waitstatus_to_exitcode(status)
        with suppress(OSError):  # the client has ended before
            client.sendall(bytes([code if code >= 0 else 128 - code]))  # as shells report a signal
        if client in self._selector.get_map():
            self._selector.unregister(client)
        self._selector.unregister(ended)
        os.close(ended)
        client.close()

    def _abandoned(self, process: int) -> None:
        """End a process whose client has ended: Spark has killed the client."""
        self._selector.unregister(self._running[process][1])
        os.kill(process, signal.SIGTERM)


def _receive(client: socket.socket, streams: list[int]) -> Request:
    """Receive a request; ``streams`` gets its standard streams.

    Raises:
        ValueError, TypeError: it is invalid.
        OSError: the client has ended, or is too slow.
    """
    start, received, *_ = socket.recv_fds(client, 4, 3)
    streams.extend(received)
    size = int.from_bytes(start, "big")
    if len(start) != 4 or len(received) != 3 or size > _MAX_REQUEST_BYTES:
        raise ValueError("this is not a request")
    with client.makefile("rb") as file:
        return Request(**json.loads(file.read(size)))


def run(request: Request) -> None:
    """Run the module that was requested, as ``python -m`` does."""
    from setproctitle import setproctitle

    command = [sys.executable, *request.arguments]
    setproctitle(" ".join(command))  # finds the memory to write it to by the variables of the start
    os.environ.clear()
    os.environ.update(request.environment)
    sys.orig_argv, sys.argv = command, request.arguments[1:]
    module = request.arguments[1]
    sys.modules.pop(module, None)  # runpy warns of a module that was imported before
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _lacking() -> str | None:
    """Return what the system lacks, None if nothing."""
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError) as error:
        return f"the end of a process cannot be waited for ({error})"
    return None


def main() -> None:
    """Load, listen at the socket named by the argument, and serve."""
    path = Path(sys.argv[1])
    environment = dict(os.environ)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # as in the JVM and its processes: the driver decides what ends
    lifeline = os.dup(0)
    request = None
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            unheard = path.with_suffix(".new")  # a socket under its name always has a listener, while the server lives
            listener.bind(str(unheard))
            listener.listen()  # clients that come during the imports wait for their end
            unheard.rename(path)
            reason = preload((*PRELOADED, *PLANNING)) or _lacking()
            if reason is not None:
                print(f"{MODULE}: {reason}; Spark's Python processes start one by one", file=sys.stderr, flush=True)
                return
            prepare_to_fork()
            request = ForkServer(listener, lifeline, environment).serve()
    finally:
        if request is None:
            path.unlink(missing_ok=True)
    if request is not None:
        run(request)


if __name__ == "__main__":
    main()

"""A broker inside a test suite or a script: in a thread, or in a process that can be killed.

    with EmbeddedBroker() as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})

Theory of operation: a thread runs its own event loop and shares nothing. A process is `python -m
sparkonce.broker_lite`, which writes its port to a pipe, receives faults over a socket, and ends with its parent, when
that socket is closed; then it also removes a temporary folder, which the parent no longer does. Its ports are held
here until `close` (`HeldPorts`), since another process could take them while it is down.

A port that no socket is bound to may become the local end of any new connection, even of a client that tries to
reach the broker there, and then cannot be listened on. The system does not choose a port with a socket bound to it,
even if that never listens; with SO_REUSEADDR on both, the broker's own can be bound beside it and listen. While the
broker is down, connections are refused as usual.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

import sparkonce
from sparkonce.broker_lite.config import BrokerConfig
from sparkonce.broker_lite.security.settings import ListenerConfig
from sparkonce.broker_lite.server.server import Server

if TYPE_CHECKING:
    from sparkonce.broker_lite.faults import Faults
    from sparkonce.broker_lite.faults.faults import Backend

STOP_TIMEOUT_S = 30.0
LOG_NAME = "broker.log"


class BrokerStartError(RuntimeError):
    """The broker did not start; the message has its output."""


class EmbeddedBroker:
    """A broker that runs from construction to `close`.

    Args:
        data_dir: the data directory; overrides `log.dirs`, as `--data-dir` does. By default the value of `log.dirs` in
            `config`, else a temporary folder, removed by `close`, at the interpreter's exit or, if this process is
            killed, by the broker's.
        process: whether to run in a separate process, which can be killed, instead of a thread.
        config: settings by Kafka's names.

    Raises:
        TypeError: for arguments of other types.
        ConfigError: for an unknown setting or an invalid value.
        BrokerStartError: if the broker does not start.
    """

    def __init__(
        self,
        data_dir: str | os.PathLike[str] | None = None,
        process: bool = False,
        config: Mapping[str, object] | None = None,
    ) -> None:
        checked = _checked(data_dir, config)
        if data_dir is None:
            data_dir = checked.log_dirs or None
        self._temporary = data_dir is None
        self._data_dir = Path(tempfile.mkdtemp(prefix="broker_lite-") if data_dir is None else data_dir).absolute()
        self._process = process
        self._runner: _Thread | _Process | None = None
        self._closed = False
        self._not_at_exit: Callable[[], None] = lambda: None
        self._faults: Faults | None = None
        self._lock = threading.RLock()  # a fault may restart the broker from its own thread
        ports = HeldPorts(checked)
        self._release_ports = weakref.finalize(self, ports.close)
        self._settings = {**(config or {}), **ports.settings()}
        try:
            self._start()
        except BaseException:
            self._release_ports()
            self._remove_temporary()
            raise
        # A thread that still runs while the interpreter exits may be ended in compiled code, which aborts the process.
        self._not_at_exit = close_at_exit(self.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @property
    def data_dir(self) -> Path:
        """The data directory; a broker in a process has its log there, too: `broker.log`."""
        return self._data_dir

    @property
    def bootstrap_servers(self) -> str:
        """The clients' `bootstrap.servers`, of the first listener; the same after a restart."""
        return next(iter(self._addresses.values()))

    @property
    def listeners(self) -> dict[str, str]:
        """The same for each listener, by its name, in the order of the setting `listeners`."""
        return dict(self._addresses)

    @property
    def pid(self) -> int | None:
        """The process id, or None in a thread or while the broker is down."""
        return self._runner.pid if self._runner is not None else None

    @property
    def faults(self) -> Faults:
        """The faults that can be injected: see docs/faults.md."""
        from sparkonce.broker_lite.faults import Faults

        with self._lock:
            if self._faults is None:
                self._faults = Faults(self._restart_after_fault, self._process)
                if self._runner is not None:
                    self._faults.attach(self._runner.fault_backend(self._faults))
            return self._faults

    def kill(self) -> None:
        """End the process by SIGKILL, as a crash would; `restart` starts it again.

        Raises:
            RuntimeError: in a thread, which cannot be killed; or if it is not running.
        """
        with self._lock:
            if not self._process:
                raise RuntimeError("only an EmbeddedBroker(process=True) can be killed")
            if not isinstance(self._runner, _Process):
                raise RuntimeError("the broker is not running, so it cannot be killed; restart() brings it back")
            if self._faults is not None:
                self._faults.detach()
            self._runner.kill()
            self._runner = None

    def stop(self) -> None:
        """Stop cleanly; `restart` starts it again. Does nothing if it is down."""
        with self._lock:
            self._stop()

    def restart(self) -> None:
        """Start again on the same port and data; a running broker is stopped cleanly first."""
        with self._lock:
            if self._closed:
                raise RuntimeError("this broker has been closed")
            self._stop()
            self._start()

    def close(self) -> None:
        """Stop cleanly and remove a temporary folder; a second call does nothing."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._not_at_exit()
                try:
                    self._stop()
                finally:
                    self._release_ports()
                    self._remove_temporary()

    def _restart_after_fault(self) -> None:
        with self._lock:
            if not self._closed:
                self.restart()

    def _start(self) -> None:
        if self._process:
            self._runner = _Process(self._settings, self.data_dir, self._temporary)
        else:
            self._runner = _Thread(self._settings, self.data_dir)
        self._addresses = self._runner.addresses
        if self._faults is not None:
            self._faults.attach(self._runner.fault_backend(self._faults))

    def _stop(self) -> None:
        if self._faults is not None:
            self._faults.detach()
        runner, self._runner = self._runner, None
        if runner is not None:
            runner.stop()

    def _remove_temporary(self) -> None:
        if self._temporary:
            shutil.rmtree(self.data_dir, ignore_errors=True)


def close_at_exit(close: Callable[[], None]) -> Callable[[], None]:
    """Call `close` at the interpreter's exit; returns a function that cancels this.

    A fork of this process does not call it: it does not own the threads and the folder.
    """
    pid = os.getpid()

    def at_exit() -> None:
        if os.getpid() == pid:
            close()

    atexit.register(at_exit)
    return partial(atexit.unregister, at_exit)


def _checked(data_dir: object, config: object) -> BrokerConfig:
    """Parse the settings, and check for mixed-up arguments.

    Raises:
        TypeError: for arguments of other types.
        ConfigError: as `BrokerConfig.of`.
    """
    if config is not None and not isinstance(config, Mapping):
        raise TypeError(f"config={config!r}: expected settings by their names, as in {{'num.partitions': 4}}")
    if data_dir is not None and not isinstance(data_dir, (str, os.PathLike)):
        raise TypeError(f"data_dir={data_dir!r}: expected a path; settings are given by name, as config={{…}}")
    return BrokerConfig.of(config or {})


class _Thread:
    """A server on its own event loop, in a thread."""

    pid = None

    def __init__(self, settings: Mapping[str, object], data_dir: Path) -> None:
        self._server = Server(BrokerConfig.of(settings), str(data_dir))
        self._started = threading.Event()
        self._error: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        # A daemon, so that a broker that is not closed does not keep the interpreter alive.
        self._thread = threading.Thread(target=self._run, name="broker_lite", daemon=True)
        self._thread.start()
        self._started.wait()
        if self._error is not None:
            self._thread.join()
            raise BrokerStartError(str(self._error)) from self._error
        self.addresses = self._server.addresses

    def fault_backend(self, faults: Faults) -> Backend:
        """Return the backend that injects faults into this broker."""
        from sparkonce.broker_lite.faults.backends import LocalBackend

        assert self._server.broker is not None
        assert self._loop is not None
        return LocalBackend(
            self._server.broker, self._server.write_gate, self._loop, faults.note, faults.restart_wanted
        )

    def stop(self) -> None:
        """Stop cleanly."""
        assert self._loop is not None
        assert self._stopping is not None
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self._error = error
        finally:
            self._started.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        await self._server.start()
        self._started.set()
        await self._stopping.wait()
        await self._server.stop()


class _Process:
    """`python -m sparkonce.broker_lite` as a child."""

    def __init__(self, settings: Mapping[str, object], data_dir: Path, temporary: bool) -> None:
        self._log_path = log_path = data_dir / LOG_NAME
        try:
            data_dir.mkdir(parents=True, exist_ok=True)
            log_path.touch()
        except OSError as error:
            raise BrokerStartError(f"{data_dir} cannot be used ({error}): choose another data directory") from error
        self._channel, theirs = socket.socketpair()
        command = [
            sys.executable,
            "-P",  # no module of the current folder
            "-m",
            "sparkonce.broker_lite",
            "--settings-from-stdin",
            "--data-dir",
            str(data_dir),
            "--parent",
            str(theirs.fileno()),
            *(["--temporary"] if temporary else []),
        ]
        with open(log_path, "ab") as log:
            begin = log.tell()
            try:
                self._child = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    pass_fds=[theirs.fileno()],
                    env=_environment(),
                    start_new_session=True,  # a Ctrl-C in the terminal is for the parent
                )
            except BaseException:
                self._channel.close()
                raise
            finally:
                theirs.close()
        self._send_settings(settings)
        assert self._child.stdout is not None
        lines = [self._child.stdout.readline().decode().strip() for _ in BrokerConfig.of(settings).listener_configs]
        self.addresses = dict(
            zip((each.name for each in BrokerConfig.of(settings).listener_configs), lines, strict=True)
        )
        if not all(lines):
            self._child.wait()
            self._release()
            said = log_path.read_bytes()[begin:].decode(errors="replace").strip()
            raise BrokerStartError(said or f"the broker ended with status {self._child.returncode}")

    def _send_settings(self, settings: Mapping[str, object]) -> None:
        """Pass the settings to the child; not on its command line, which every user can read."""
        assert self._child.stdin is not None
        with contextlib.suppress(BrokenPipeError), self._child.stdin as pipe:
            pipe.write(json.dumps(dict(settings), default=str).encode())

    @property
    def pid(self) -> int:
        """The child's process id."""
        return self._child.pid

    def fault_backend(self, faults: Faults) -> Backend:
        """Return the backend that injects faults into this broker."""
        from sparkonce.broker_lite.faults.backends import RemoteBackend

        return RemoteBackend(self._channel, faults.note, faults.restart_wanted)

    def kill(self) -> None:
        """Kill the process."""
        self._child.kill()
        self._child.wait()
        self._release()

    def stop(self) -> None:
        """Stop cleanly; kill it if that fails."""
        self._child.terminate()
        try:
            self._child.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise RuntimeError(f"the broker did not stop within {STOP_TIMEOUT_S} s; see {self._log_path}") from None
        self._release()

    def _release(self) -> None:
        assert self._child.stdout is not None
        self._child.stdout.close()
        with contextlib.suppress(OSError):  # wakes the thread that reads from it, if there is one
            self._channel.shutdown(socket.SHUT_RDWR)
        self._channel.close()


def _environment() -> dict[str, str]:
    """Return an environment with this interpreter's import path, in case the package is not installed."""
    here = str(Path(sparkonce.__file__).resolve().parents[1])
    path = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": f"{here}{os.pathsep}{path}" if path else here}


class HeldPorts:
    """A socket bound to the address of each listener; unset ports are chosen here."""

    def __init__(self, config: BrokerConfig) -> None:
        """Bind; failures are left to the broker, which reports why it cannot listen there."""
        self._config = config
        self._sockets: dict[str, socket.socket] = {}
        for each in config.listener_configs:
            with contextlib.suppress(OSError):
                self._sockets[each.name] = _bound(each)

    def settings(self) -> Mapping[str, object]:
        """Return the settings that make the broker listen on these ports."""
        if not self._config.security.listeners:
            (only,) = self._config.listener_configs
            return {"port": self._port(only)}
        return {"listeners": ",".join(map(self._url, self._config.listener_configs))}

    def close(self) -> None:
        """Release the ports; a second call does nothing."""
        for each in self._sockets.values():
            each.close()
        self._sockets.clear()

    def _url(self, listener: ListenerConfig) -> str:
        host = f"[{listener.host}]" if ":" in listener.host else listener.host
        return f"{listener.name}://{host}:{self._port(listener)}"

    def _port(self, listener: ListenerConfig) -> int:
        held = self._sockets.get(listener.name)
        return listener.port if held is None else int(held.getsockname()[1])


def _bound(listener: ListenerConfig) -> socket.socket:
    """Bind as `broker_lite.server.listener` does.

    Raises:
        OSError: if the address cannot be resolved, or is in use.
    """
    found = socket.getaddrinfo(listener.host, listener.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, _, _, _, address = found[0]
    sock = socket.socket(family, socket.SOCK_STREAM)
    with contextlib.ExitStack() as undo:
        undo.callback(sock.close)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        undo.pop_all()
    return sock

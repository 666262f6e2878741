"""Hosts that share nothing but a switch, each in a network namespace of its own.

    with Network(["one", "two"], seed=1) as network, network.hosts["one"].entered():
        socket.create_connection((network.hosts["two"].address, 9092))

Theory of operation: a thread moves to a new namespace, opens a TAP device there, whose descriptor is a port of the
switch, and ends. The namespace has no name: it lasts as long as a descriptor of it or a process in it, and the TAP
device as long as its own. A `reaper` kills what still runs there, so that nothing is left behind, however this process
ends. The machine's own interfaces are neither used nor changed. A namespace belongs to a thread: a thread that
has `entered` a host starts its processes and threads there.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Final, Self

from lab.hosts.switch import Switch

CLONE_NEWNET: Final = 0x40000000
CLONE_NEWTIME: Final = 0x80
_TUN: Final = "/dev/net/tun"
_NAMESPACE: Final = "/proc/thread-self/ns/net"
_TUNSETIFF: Final = 0x400454CA
_IFF_TAP: Final = 0x0002
_IFF_NO_PI: Final = 0x1000
_DEVICE: Final = "eth0"
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class Host:
    """One host; its name is the switch's."""

    name: str
    address: str
    _namespace: int

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Have this thread, and what it starts, use this host's network."""
        before = os.open(_NAMESPACE, os.O_RDONLY)
        try:
            move_to(self._namespace, CLONE_NEWNET)
            try:
                yield
            finally:
                move_to(before, CLONE_NEWNET)
        finally:
            os.close(before)


class Network:
    """Hosts and the switch between them, from construction to `close`; a context manager."""

    def __init__(self, names: Sequence[str], seed: int) -> None:
        """Make a host of each name.

        Raises:
            OSError: if this process may not; `missing_reason` says so beforehand.
        """
        self.hosts: dict[str, Host] = {}
        ports: dict[bytes, tuple[str, int]] = {}
        with ExitStack() as undo:
            for number, name in enumerate(names, 1):
                with ThreadPoolExecutor(1) as thread:  # of its own: it is left in the new namespace
                    namespace, port = thread.submit(_make, number, len(names)).result()
                undo.callback(os.close, namespace)
                undo.callback(os.close, port)
                self.hosts[name] = Host(name, _address(number), namespace)
                ports[_ethernet_address(number)] = name, port
            self.switch = Switch(ports, seed)
            undo.callback(self.switch.close)
            undo.callback(_end, self._start_reaper())
            self._stack = undo.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove the switch and the hosts, with all that still runs there; no thread may be on one of them."""
        self._stack.close()

    def _start_reaper(self) -> subprocess.Popen[bytes]:
        namespaces = [host._namespace for host in self.hosts.values()]
        command = [sys.executable, "-m", "lab.hosts.reaper", *map(str, namespaces)]
        return subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=namespaces, start_new_session=True)


def missing_reason() -> str | None:
    """Return why hosts cannot be made here, or None."""
    if shutil.which("ip") is None:
        return "needs the command ip: apt-get install iproute2"
    if not os.path.exists("/proc/self/ns/time"):
        return "needs Linux 5.6 with time namespaces"
    try:
        Network(["one"], 0).close()
    except OSError as error:
        return f"needs the right to make network namespaces and TAP devices, as root has it: {error}"
    return None


def _end(reaper: subprocess.Popen[bytes]) -> None:
    assert reaper.stdin is not None
    reaper.stdin.close()
    reaper.wait()


def leave(kinds: int) -> None:
    """Move this thread to new namespaces; raises OSError if it may not."""
    _check(_libc.unshare(kinds))


def move_to(namespace: int, kind: int) -> None:
    """Move this thread to the namespace of a descriptor; raises OSError if it may not."""
    _check(_libc.setns(namespace, kind))


def _check(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _make(number: int, hosts: int) -> tuple[int, int]:
    """Move this thread to a new namespace with a device; return the descriptors of both."""
    leave(CLONE_NEWNET)
    with ExitStack() as undo:
        port = os.open(_TUN, os.O_RDWR)
        undo.callback(os.close, port)
        fcntl.ioctl(port, _TUNSETIFF, struct.pack("16sH22x", _DEVICE.encode(), _IFF_TAP | _IFF_NO_PI))
        commands = [
            "link set lo up",
            f"link set {_DEVICE} address {_ethernet_address(number).hex(':')}",
            f"address add {_address(number)}/24 dev {_DEVICE}",
            f"link set {_DEVICE} up",
        ]
        for other in range(1, hosts + 1):
            if other != number:
                known = f"{_address(other)} lladdr {_ethernet_address(other).hex(':')}"
                commands.append(f"neighbor add {known} nud permanent dev {_DEVICE}")
        text = "\n".join(commands)
        done = subprocess.run(["ip", "-batch", "-"], input=text, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise OSError(f"ip: {done.stderr.strip()}")
        namespace = os.open(_NAMESPACE, os.O_RDONLY)
        undo.pop_all()
    return namespace, port


def _address(number: int) -> str:
    return f"10.44.0.{number}"


def _ethernet_address(number: int) -> bytes:
    return bytes((2, 0, 0, 0, 0, number))  # locally administered

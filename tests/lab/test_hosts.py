"""Hosts behind a switch: what is cut in one direction, late or lost; clocks apart; nothing that stays behind."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from lab.hosts.clocks import WallClock
from lab.hosts.network import Network, missing_reason
from lab.hosts.switch import CUT, Quality

WITHIN_S = 30.0
PORT = 9092
HOUR_S = 3600


@pytest.fixture
def network() -> Iterator[Network]:
    if reason := missing_reason():
        pytest.skip(reason)
    with Network(["one", "two", "three"], seed=1) as made:
        yield made


@pytest.fixture
def sockets(network: Network) -> Iterator[dict[str, socket.socket]]:
    """A socket for datagrams on each host."""
    with ExitStack() as stack:
        made = {}
        for name, host in network.hosts.items():
            with host.entered():
                made[name] = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            made[name].bind((host.address, PORT))
            made[name].settimeout(WITHIN_S)
        yield made


def place(network: Network, name: str) -> tuple[str, int]:
    return network.hosts[name].address, PORT


def test_a_direction_is_cut_and_the_other_one_is_not(network: Network, sockets: dict[str, socket.socket]) -> None:
    network.switch.set_quality(("one", "two"), CUT)
    sockets["one"].sendto(b"lost", place(network, "two"))
    sockets["one"].sendto(b"elsewhere", place(network, "three"))
    sockets["two"].sendto(b"back", place(network, "one"))
    assert sockets["three"].recv(100) == b"elsewhere"
    assert sockets["one"].recvfrom(100) == (b"back", place(network, "two"))
    network.switch.set_quality(("one", "two"), Quality())
    sockets["one"].sendto(b"whole again", place(network, "two"))
    assert sockets["two"].recv(100) == b"whole again"
    assert network.switch.lost == {("one", "two"): 1}


def test_what_is_late_is_overtaken_from_elsewhere_and_stays_in_order(
    network: Network, sockets: dict[str, socket.socket]
) -> None:
    network.switch.set_quality(("one", "three"), Quality(delay_s=0.5, jitter_s=0.2))
    for number in range(5):
        sockets["one"].sendto(bytes([number]), place(network, "three"))
    sockets["two"].sendto(b"quick", place(network, "three"))
    received = [sockets["three"].recv(100) for _ in range(6)]
    assert received == [b"quick", *(bytes([number]) for number in range(5))]


def test_a_share_is_lost(network: Network, sockets: dict[str, socket.socket]) -> None:
    network.switch.set_quality(("one", "two"), Quality(loss=0.5))
    for _ in range(100):
        sockets["one"].sendto(b"x", place(network, "two"))
    sockets["one"].sendto(b"last", place(network, "three"))
    assert sockets["three"].recv(100) == b"last"
    assert 25 < network.switch.lost["one", "two"] < 75
    assert network.switch.lost["one", "two"] + network.switch.passed["one", "two"] == 100


def interfaces() -> list[str]:
    return sorted(name for _, name in socket.if_nameindex())


def test_the_machines_network_is_not_touched(network: Network) -> None:
    machine = interfaces()
    with network.hosts["one"].entered():
        namespace = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        assert interfaces() == ["eth0", "lo"]
    assert interfaces() == machine
    network.close()
    with open(namespace):  # kept from ending
        seen = ["nsenter", f"--net=/proc/self/fd/{namespace}", "ip", "-brief", "link"]
        left = subprocess.run(seen, capture_output=True, text=True, check=True, pass_fds=[namespace])
    assert [line.split()[0] for line in left.stdout.splitlines()] == ["lo"]


def test_what_runs_on_a_host_ends_with_its_maker(network: Network) -> None:
    """Whether that closes the network or is killed."""
    program = "import subprocess, sys; from lab.hosts.network import Network; network = Network(['one'], 1)\n"
    program += "with network.hosts['one'].entered(): subprocess.Popen(['sleep', '1000'])\nprint()\n"
    for end in ("network.close()", "import os; os.kill(os.getpid(), 9)"):
        command = [sys.executable, "-c", program + end]
        # Its standard output is open as long as any of its processes.
        with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment()) as maker:
            assert maker.communicate(timeout=WITHIN_S)[0] == b"\n"


def environment(*folders: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join([*map(str, folders), *sys.path])}


def test_clocks_are_apart_and_can_be_set(network: Network, tmp_path: Path) -> None:
    program = (
        "import time\nwhile input():\n    print(time.time(), time.time_ns() / 1e9, time.monotonic(), flush=True)\n"
    )
    (tmp_path / "says_the_time.py").write_text(program)
    clock = WallClock(tmp_path / "clock", -HOUR_S)
    command = [sys.executable, "-m", "lab.hosts.clocks", str(clock.file), str(24 * HOUR_S), "says_the_time"]
    with subprocess.Popen(
        command, env=environment(tmp_path), text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for ahead_s in (-HOUR_S, 5 * HOUR_S):
            clock.set(ahead_s)
            process.stdin.write("now\n")
            process.stdin.flush()
            said = map(float, process.stdout.readline().split())
            machine = (time.time(), time.time(), time.monotonic())
            apart_h = [round((theirs - ours) / HOUR_S) for theirs, ours in zip(said, machine, strict=True)]
            assert apart_h == [ahead_s // HOUR_S, ahead_s // HOUR_S, 24]
        process.stdin.write("\n")
        process.stdin.close()
        assert process.wait(WITHIN_S) == 0

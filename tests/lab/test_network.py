"""The proxy that stands for a network: bytes that pass, that wait, and connections that are closed."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import psutil
import pytest

from lab.network import Proxy, free_port

WITHIN_S = 30.0


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    """Before a server at another address and the same port, which returns each byte that it gets."""
    with Proxy(None, "127.0.0.4", "127.0.0.3") as between, socket.create_server(("127.0.0.3", between.port)) as server:

        def serve() -> None:
            while True:
                try:
                    accepted, _ = server.accept()
                except OSError:
                    return
                threading.Thread(target=echo, args=(accepted,), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        yield between
        server.shutdown(socket.SHUT_RDWR)


def echo(accepted: socket.socket) -> None:
    with accepted:
        while data := accepted.recv(100):
            accepted.sendall(data)


def connect(proxy: Proxy) -> socket.socket:
    return socket.create_connection(("127.0.0.4", proxy.port), timeout=WITHIN_S)


def is_closed(client: socket.socket) -> bool:
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True


def test_bytes_pass(proxy: Proxy) -> None:
    with connect(proxy) as client:
        client.sendall(b"one")
        assert client.recv(100) == b"one"


def test_bytes_that_waited_pass_first(proxy: Proxy) -> None:
    with connect(proxy) as client:
        proxy.stall()
        client.sendall(b"o")
        client.settimeout(0.05)
        with pytest.raises(TimeoutError):
            client.recv(1)
        client.settimeout(WITHIN_S)
        proxy.heal()
        client.sendall(b"k")
        assert client.recv(1) + client.recv(1) == b"ok"


def test_what_is_cut_is_closed_and_waiting_bytes_never_pass(proxy: Proxy) -> None:
    with connect(proxy) as client:
        proxy.stall()
        client.sendall(b"one")
        proxy.cut()
        assert is_closed(client)
    with connect(proxy) as refused:
        assert is_closed(refused)
    proxy.heal()
    with connect(proxy) as client:
        client.sendall(b"two")
        assert client.recv(100) == b"two"


def test_a_free_port_is_given_to_nobody_but_a_server_that_wants_it() -> None:
    """Another process had been given the port of a Kafka that was starting, and never answered its clients."""
    port = free_port()
    held = [each for each in psutil.net_connections("tcp4") if each.laddr and each.laddr.port == port]
    assert [each.status for each in held] == [psutil.CONN_TIME_WAIT]
    with socket.create_server(("127.0.0.1", port)) as server, socket.create_connection(("127.0.0.1", port)):
        server.accept()[0].close()

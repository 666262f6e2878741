"""Is a Docker engine there, and what to do if not.

Only the Python package ``docker`` (it comes with testcontainers) is used, so the ``docker`` command is not needed.
"""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import docker
from docker.errors import DockerException
from docker.utils import parse_host

_START = "tests/containers/start_docker.sh"


class EngineMissingError(Exception):
    """No Docker engine answers; the message says what was tried and how to get one."""


@contextmanager
def engine() -> Iterator[docker.DockerClient]:
    """Yield a client of the Docker engine that answers, closed at the end.

    Raises:
        EngineMissingError: if none does.
    """
    _look_for_socket()
    try:
        client = docker.from_env()
    except DockerException as error:
        raise EngineMissingError(_advice(error)) from error
    try:
        try:
            client.ping()
        except (DockerException, OSError) as error:
            raise EngineMissingError(_advice(error)) from error
        yield client
    finally:
        client.close()


def prepare_environment() -> None:
    """Set what testcontainers reads when it is imported, unless the user has.

    Its clean-up container (Ryuk) is an image of its own that may not be fetched; our context managers remove what
    they start. Inside a container that shares the engine's network, as CI jobs do, published ports are on loopback.
    """
    os.environ.setdefault("TESTCONTAINERS_RYUK_DISABLED", "true")
    if Path("/.dockerenv").exists():
        os.environ.setdefault("TESTCONTAINERS_CONNECTION_MODE", "docker_host")
        os.environ.setdefault("TESTCONTAINERS_HOST_OVERRIDE", "127.0.0.1")


def _look_for_socket() -> None:
    """Try the engine's socket before the package does, which leaves its own open (a warning) where nothing answers."""
    host = parse_host(os.environ.get("DOCKER_HOST"))
    if not host.startswith("http+unix://"):
        return
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(host.removeprefix("http+unix://"))
        except OSError as error:
            raise EngineMissingError(_advice(error)) from error


def _advice(error: Exception) -> str:
    where = os.environ.get("DOCKER_HOST", "the default socket (DOCKER_HOST is not set)")
    if shutil.which("dockerd"):
        cure = f"Start the one that is installed: systemctl start docker, or as root {_START}"
    else:
        cure = (
            "Install one: Docker Desktop, or on Debian and Ubuntu apt-get install docker.io, "
            f"then systemctl start docker, or as root {_START}"
        )
    return f"No Docker engine answers at {where}: {error}\n{cure}"

"""Stores with S3's interface on the loopback address, each with one bucket: moto, or versitygw, a real server.

Both answer a conditional write (``If-None-Match: *``) as S3 does: of several writers of one object one succeeds, and
the others get 412. moto checks no signatures, so it accepts any credentials, and a proxy may change requests.
"""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lab.child_process import ChildProcess
from lab.s3_peers import s3a_jars, versitygw
from sparkonce.jobs.shared.jars import PeerMissingError

ACCESS_KEY, SECRET = "sparkonce", "s3cret-key-of-the-store"
REGION = "us-east-1"
BUCKET = "bucket"
START_LIMIT_S = 60.0


@dataclass(frozen=True, slots=True)
class S3Store:
    """A store's address and credentials."""

    address: str

    @property
    def storage_options(self) -> Mapping[str, str]:
        """The options with which delta-rs reaches it."""
        return {
            "AWS_ENDPOINT_URL": self.address,
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": REGION,
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
        }

    @property
    def query_options(self) -> dict[str, str]:
        """The same, as options of a query."""
        return {f"storage.{name}": value for name, value in self.storage_options.items()}

    @property
    def session(self) -> dict[str, str]:
        """Settings of a Spark session that reaches the store as ``s3a://``; it also needs `s3a_jars`."""
        settings = {
            "endpoint": self.address,
            "endpoint.region": REGION,
            "path.style.access": "true",
            "connection.ssl.enabled": "false",
            "access.key": ACCESS_KEY,
            "secret.key": SECRET,
        }
        return {f"spark.hadoop.fs.s3a.{name}": value for name, value in settings.items()}

    @property
    def jars(self) -> list[str]:
        """The jars of such a session.

        Raises:
            PeerMissingError: if Maven cannot fetch them.
        """
        return s3a_jars()

    def location(self, folder: Path) -> str:
        """Return the URI of the bucket's folder for a local one."""
        return f"s3a://{BUCKET}/{folder.name}"


@contextmanager
def open_s3(*, real: bool = False) -> Iterator[S3Store]:
    """Start a store: moto, or with ``real`` versitygw.

    Raises:
        PeerMissingError: if it is not available, or does not start.
    """
    with tempfile.TemporaryDirectory(prefix="s3-", ignore_cleanup_errors=True) as folder:
        if real:
            with _versitygw(Path(folder)) as address:
                yield S3Store(address)
        else:
            with MotoStore(Path(folder)) as moto:
                yield S3Store(moto.address)


class MotoStore(ChildProcess):
    """moto's server; its objects are in memory."""

    def __init__(self, folder: Path) -> None:
        super().__init__("lab.store.moto_server", {}, folder / "moto.log")
        ready = self.first_event(START_LIMIT_S)
        if ready is None:
            raise PeerMissingError(
                f"moto did not start (pip install 'sparkonce[test]'); its log ends with:\n{self.log_tail()}"
            )
        self.address: str = ready["ready"]


@contextmanager
def _versitygw(folder: Path) -> Iterator[str]:
    """Serve a folder, whose subfolders are buckets."""
    command = versitygw()
    data = folder / "data"
    (data / BUCKET).mkdir(parents=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {**os.environ, "ROOT_ACCESS_KEY": ACCESS_KEY, "ROOT_SECRET_KEY": SECRET}
    # Without the sidecar it keeps metadata in extended attributes, which not every file system has.
    sidecar = folder / "metadata"
    sidecar.mkdir()
    words = [
        "--port",
        f"127.0.0.1:{port}",
        "--region",
        REGION,
        "--quiet",
        "posix",
        "--sidecar",
        str(sidecar),
        str(data),
    ]
    with (folder / "versitygw.log").open("wb") as log:
        server = subprocess.Popen([command, *words], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)
    try:
        _await_port(port, server, folder / "versitygw.log")
        yield f"http://127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait()


def _await_port(port: int, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline and server.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.02)
        else:
            return
    raise PeerMissingError(f"versitygw did not start; its log ends with: {log.read_text(errors='replace')[-1000:]}")

"""A store with the interface of S3, for tests."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[3]
SECRET = "s3cret-key-of-the-store"


@dataclass(frozen=True)
class Store:
    """Where it is."""

    address: str

    @property
    def storage_options(self) -> Mapping[str, str]:
        return {
            "AWS_ENDPOINT_URL": self.address,
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "tests",
            "AWS_SECRET_ACCESS_KEY": SECRET,
        }

    @property
    def query_options(self) -> dict[str, str]:
        return {f"storage.{name}": value for name, value in self.storage_options.items()}


@contextmanager
def s3_store() -> Iterator[Store]:
    """Run one."""
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", "tests.unit.sink.s3_server"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=PROJECT,
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        try:
            address = server.stdout.readline().strip()
            assert address, "moto did not start"
            yield Store(address)
        finally:
            server.stdin.close()
            server.wait(timeout=30)

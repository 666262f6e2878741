"""Find the software around S3: Spark's file system for ``s3a://``, and versitygw, a server with S3's interface.

Spark's ``s3a://`` is hadoop-aws, in the version of Spark's Hadoop. It depends on the whole AWS SDK, a jar of 600 MB;
the modules named here are those that it loads, 18 MB.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from sparkonce.jobs.shared.jars import PeerMissingError, cache_directory, spark_jars

VERSITYGW_MODULE = "github.com/versity/versitygw/cmd/versitygw"
VERSITYGW_VERSION = "v1.8.0"
BUILD_LIMIT_S = 1800
HADOOP_VERSION = "3.5.0"
AWS_SDK_VERSION = "2.35.4"
"""The version that hadoop-aws was built with."""
S3A_ARTIFACTS = (
    ("org.apache.hadoop", "hadoop-aws", HADOOP_VERSION),
    *(("software.amazon.awssdk", name, AWS_SDK_VERSION) for name in ("s3-transfer-manager", "sts", "apache-client")),
    ("software.amazon.s3.analyticsaccelerator", "analyticsaccelerator-s3", "1.3.1"),
)
_WHOLE_SDK = "software.amazon.awssdk:bundle"


def s3a_jars() -> list[str]:
    """Return the jars of ``s3a://``, for `spark.jars`.

    Raises:
        PeerMissingError: if Maven cannot fetch them.
    """
    return spark_jars(f"s3a-{HADOOP_VERSION}", S3A_ARTIFACTS, without=(_WHOLE_SDK,))


def versitygw() -> str:
    """Return the server's path; Go builds it once: two minutes on two cores, kept in the cache (60 MB).

    The environment variable `VERSITYGW` may name an existing one.

    Raises:
        PeerMissingError: if there is no Go, or it cannot build it.
    """
    named = os.environ.get("VERSITYGW")
    if named:
        if not os.access(named, os.X_OK):
            raise PeerMissingError(f"VERSITYGW={named} is not a program")
        return named
    command = cache_directory() / f"versitygw-{VERSITYGW_VERSION}" / "versitygw"
    if not command.exists():
        _build(command)
    return str(command)


def _build(command: Path) -> None:
    go = shutil.which("go")
    if go is None:
        raise PeerMissingError("no go found: install Go, or name a versitygw in the variable VERSITYGW")
    command.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=command.parent) as folder:
        target = f"{VERSITYGW_MODULE}@{VERSITYGW_VERSION}"
        result = subprocess.run(
            [go, "install", "-trimpath", "-ldflags=-s -w", target],
            env={**os.environ, "GOBIN": folder},
            capture_output=True,
            text=True,
            timeout=BUILD_LIMIT_S,
            check=False,
        )
        if result.returncode != 0:
            last = (result.stderr.strip().splitlines() or ["no output"])[-1]
            raise PeerMissingError(f"Go could not build {target}: {last[:400]}")
        Path(folder, "versitygw").replace(command)

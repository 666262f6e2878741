"""Jars from Maven, copied once into the user's cache, and the Java to start."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

MAVEN_TIMEOUT_S = 900
DELTA_VERSION = "4.4.0"
DELTA_SPARK = "4.2"
"""The minor version of Spark that this version of delta-spark was built for; it fails on others."""
NO_DELTA_SPARK = f"delta-spark {DELTA_VERSION} is for Spark {DELTA_SPARK}, and this is another one"
DELTA_ARTIFACTS = (("io.delta", f"delta-spark_{DELTA_SPARK}_2.13", DELTA_VERSION),)
_COMPLETE = ".complete"


class PeerMissingError(RuntimeError):
    """The real software is not available here; the message says why and how to get it."""


def cache_directory() -> Path:
    """Return the directory of downloaded jars."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sparkonce"


def delta_jars() -> list[str]:
    """Return the jars of Delta's JVM sink, for `spark.jars`.

    Raises:
        PeerMissingError: if Maven cannot fetch them, or there are none for this version of Spark.
    """
    from pyspark import __version__

    if not __version__.startswith(f"{DELTA_SPARK}."):
        raise PeerMissingError(f"{NO_DELTA_SPARK}; install pyspark=={DELTA_SPARK}.*")
    return spark_jars(f"delta-{DELTA_VERSION}", DELTA_ARTIFACTS)


def spark_jars(name: str, artifacts: tuple[tuple[str, str, str], ...], without: Sequence[str] = ()) -> list[str]:
    """Fetch artifacts and return their jars, without those that Spark includes, in any version.

    ``without`` lists dependencies to leave out, each as ``group:name``.

    Raises:
        PeerMissingError: if Maven is missing or fails.
    """
    import pyspark

    directory = cache_directory() / name
    copy_artifacts(directory, artifacts, without)
    of_spark = {_without_version(jar) for jar in Path(pyspark.__file__).with_name("jars").glob("*.jar")}
    return [str(jar) for jar in sorted(directory.glob("*.jar")) if _without_version(jar) not in of_spark]


def _without_version(jar: Path) -> str:
    return re.sub(r"-\d[^-]*(-[A-Za-z0-9.]+)?$", "", jar.stem)


def java_command() -> str:
    """Return the Java to start.

    Raises:
        PeerMissingError: if there is none.
    """
    home = os.environ.get("JAVA_HOME")
    command = shutil.which("java", path=os.path.join(home, "bin") if home else None)
    if command is None:
        raise PeerMissingError("no java found: install a Java 17 or point JAVA_HOME at one")
    return command


def copy_artifacts(directory: Path, artifacts: tuple[tuple[str, str, str], ...], without: Sequence[str] = ()) -> None:
    """Let Maven copy artifacts (group, name, version) and their runtime dependencies into `directory`, once.

    ``without`` lists dependencies to leave out, each as ``group:name``.

    Raises:
        PeerMissingError: if Maven is missing or fails.
    """
    if (directory / _COMPLETE).exists():
        return
    maven = shutil.which("mvn")
    if maven is None:
        raise PeerMissingError("no mvn found: install Maven, or name a directory of Kafka's jars in KAFKA_LIBS")
    directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory.parent) as work:
        project = Path(work) / "pom.xml"
        project.write_text(_project(artifacts, without))
        copied = Path(work) / "jars"
        goal = [
            "-Dstyle.color=never",
            "dependency:copy-dependencies",
            "-DincludeScope=runtime",
            f"-DoutputDirectory={copied}",
        ]
        result = subprocess.run(
            [maven, "-B", "-q", "-f", str(project), *goal],
            capture_output=True,
            text=True,
            timeout=MAVEN_TIMEOUT_S,
            check=False,
        )
        if result.returncode != 0:
            raise PeerMissingError(f"Maven could not fetch {artifacts[0][1]}: {_first_error(result)}")
        (copied / _COMPLETE).touch()
        _move_into_place(copied, directory)


def _first_error(result: subprocess.CompletedProcess[str]) -> str:
    """Return Maven's first error, without the colours that it prints even to a pipe."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", result.stdout + result.stderr)
    lines = [line.removeprefix("[ERROR]").strip() for line in plain.splitlines()]
    return next(filter(None, lines), "no output")[:400]


def _move_into_place(copied: Path, directory: Path) -> None:
    try:
        copied.rename(directory)
    except OSError:
        # Another process was faster, or an earlier copy is incomplete: keep the former, replace the latter.
        if not (directory / _COMPLETE).exists():
            shutil.rmtree(directory)
            copied.rename(directory)


def _project(artifacts: tuple[tuple[str, str, str], ...], without: Sequence[str]) -> str:
    excluded = "".join(
        f"<exclusion><groupId>{group}</groupId><artifactId>{name}</artifactId></exclusion>"
        for group, _, name in (each.partition(":") for each in without)
    )
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version>"
        f"<exclusions>{excluded}</exclusions></dependency>"
        for group, name, version in artifacts
    )
    return (
        "<project><modelVersion>4.0.0</modelVersion><groupId>sparkonce</groupId><artifactId>peers</artifactId>"
        f"<version>1</version><dependencies>{dependencies}</dependencies></project>\n"
    )

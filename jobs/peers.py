"""Find the real software to compare with: Apache Kafka's jars, and its tools.

The jars come from a directory named by `KAFKA_LIBS`, or else from Maven, copied once into a cache of the user's.
Where neither is there, callers get None and a reason, and skip with it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

KAFKA_VERSION = "4.3.0"
KAFKA_ARTIFACTS = (
    ("org.apache.kafka", "kafka_2.13", KAFKA_VERSION),
    ("org.apache.kafka", "kafka-tools", KAFKA_VERSION),
    ("org.slf4j", "slf4j-nop", "1.7.36"),
)
MAVEN_TIMEOUT_S = 900
TOOL_TIMEOUT_S = 300
_COMPLETE = ".complete"


class PeerMissingError(RuntimeError):
    """The real software is not to be had here; the message says why and how to get it."""


def cache_directory() -> Path:
    """Give the directory that downloaded jars are kept in."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sparkonce"


def kafka_classpath() -> str | None:
    """Give a Java classpath with Apache Kafka's server, clients and tools, or None: see `missing_kafka_reason`."""
    try:
        return _kafka_classpath()
    except PeerMissingError:
        return None


def missing_kafka_reason() -> str | None:
    """Give why `kafka_classpath` is None, or None if it is not."""
    try:
        _kafka_classpath()
    except PeerMissingError as error:
        return str(error)
    return None


def run_tool(class_name: str, *args: str, timeout_s: float = TOOL_TIMEOUT_S) -> subprocess.CompletedProcess[str]:
    """Run one of Kafka's own tools and give its output; a non-zero exit is the caller's to judge.

    Raises:
        PeerMissingError: if Kafka's jars or a Java are missing.
    """
    command = [java_command(), "-cp", _kafka_classpath(), class_name, *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)


def java_command() -> str:
    """Give the Java to start.

    Raises:
        PeerMissingError: if there is none.
    """
    home = os.environ.get("JAVA_HOME")
    command = shutil.which("java", path=os.path.join(home, "bin") if home else None)
    if command is None:
        raise PeerMissingError("no java found: install a Java 17 or point JAVA_HOME at one")
    return command


def _kafka_classpath() -> str:
    named = os.environ.get("KAFKA_LIBS")
    if named:
        if not any(Path(named).glob("kafka-clients-*.jar")):
            raise PeerMissingError(f"KAFKA_LIBS={named} holds no kafka-clients jar: name the directory of Kafka's jars")
        return os.path.join(named, "*")
    directory = cache_directory() / f"kafka-{KAFKA_VERSION}"
    copy_artifacts(directory, KAFKA_ARTIFACTS)
    return str(directory / "*")


def copy_artifacts(directory: Path, artifacts: tuple[tuple[str, str, str], ...]) -> None:
    """Have Maven copy artifacts (group, name, version) and what they need at run time into `directory`, once.

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
        project.write_text(_project(artifacts))
        copied = Path(work) / "jars"
        goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={copied}"]
        result = subprocess.run(
            [maven, "-B", "-q", "-f", str(project), *goal],
            capture_output=True,
            text=True,
            timeout=MAVEN_TIMEOUT_S,
            check=False,
        )
        if result.returncode != 0:
            last = (result.stdout + result.stderr).strip().splitlines()[-1:]
            raise PeerMissingError(f"Maven could not fetch {artifacts[0][1]}: {' '.join(last)}")
        (copied / _COMPLETE).touch()
        _move_into_place(copied, directory)


def _move_into_place(copied: Path, directory: Path) -> None:
    try:
        copied.rename(directory)
    except OSError:
        # Another process was first, or an earlier copy was cut short: the first is as good, the second is replaced.
        if not (directory / _COMPLETE).exists():
            shutil.rmtree(directory)
            copied.rename(directory)


def _project(artifacts: tuple[tuple[str, str, str], ...]) -> str:
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version></dependency>"
        for group, name, version in artifacts
    )
    return (
        "<project><modelVersion>4.0.0</modelVersion><groupId>sparkonce</groupId><artifactId>peers</artifactId>"
        f"<version>1</version><dependencies>{dependencies}</dependencies></project>\n"
    )

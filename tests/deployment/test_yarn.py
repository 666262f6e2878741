"""docs/deployment/clusters.md: its commands for YARN, on a resource manager with two node managers, of one process."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sparkonce import EmbeddedBroker
from sparkonce.jobs.shared.jars import PeerMissingError, cache_directory, copy_artifacts, java_command
from tests.deployment.pages import Place, submissions

HADOOP = "3.5.0"
ARTIFACTS = (
    ("org.apache.hadoop", "hadoop-client-minicluster", HADOOP),
    # What Hadoop's small cluster is made for tests with, and does not bring.
    ("org.junit.jupiter", "junit-jupiter-api", "5.13.3"),
    ("org.mockito", "mockito-core", "5.18.0"),
    ("org.bouncycastle", "bcpkix-jdk18on", "1.82"),
    ("ch.qos.reload4j", "reload4j", "1.2.26"),
)


@contextmanager
def yarn(folder: Path) -> Iterator[Path]:
    """Run a YARN, and yield the folder of its settings."""
    try:
        jars, java = cache_directory() / f"hadoop-minicluster-{HADOOP}", java_command()
        copy_artifacts(jars, ARTIFACTS)
    except PeerMissingError as error:
        pytest.skip(str(error))
    folder.mkdir()
    command = [java, "-Xmx512m", "-cp", f"{jars}/*", str(Path(__file__).with_name("MiniYarn.java")), str(folder)]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"READY\n", (folder / "log").read_text()[-3000:]
        yield folder
    finally:
        process.stdin.close()  # it ends, and its node managers end their containers
        process.stdout.close()
        try:
            process.wait(60)
        finally:
            process.kill()
            process.wait()


@pytest.mark.spark
@pytest.mark.java
@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_the_commands_of_the_page(tmp_path: Path) -> None:
    with EmbeddedBroker(process=True) as broker, yarn(tmp_path / "hadoop") as settings:
        place = Place(broker, tmp_path, {"/etc/hadoop/conf": str(settings)})
        client, cluster = submissions("YARN")
        place.send(5)
        place.run(client)
        place.check()
        place.send(4)
        assert "final status: SUCCEEDED" in place.run(cluster)
        place.check()

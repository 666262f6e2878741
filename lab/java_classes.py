"""Classes in Java that the laboratory adds to Spark: compiled into a jar where a JDK is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from sparkonce.jobs.shared.jars import PeerMissingError, java_command


def compiled(name: str, source: str, needed: Sequence[str], directory: Path) -> str:
    """Return the jar with the public class ``name``, for `spark.jars`; it is written to ``directory``.

    ``needed`` lists the jars that it needs besides those of Spark.

    Raises:
        PeerMissingError: if there is no Java compiler, or it refuses the source.
    """
    work = directory / f"java-{name}"
    classes = work / "classes"
    classes.mkdir(parents=True)
    file = work / f"{name}.java"
    file.write_text(source)
    _run([_tool("javac"), "-nowarn", "-d", str(classes), "-cp", os.pathsep.join([*needed, *_of_spark()]), str(file)])
    jar = work / f"{name}.jar"
    _run([_tool("jar"), "--create", "--file", str(jar), "-C", str(classes), "."])
    return str(jar)


def _of_spark() -> list[str]:
    import pyspark

    return [str(jar) for jar in Path(pyspark.__file__).with_name("jars").glob("*.jar")]


def _tool(name: str) -> str:
    found = shutil.which(name, path=str(Path(os.path.realpath(java_command())).parent)) or shutil.which(name)
    if found is None:
        raise PeerMissingError(f"no {name} found: install a JDK 17 or point JAVA_HOME at one")
    return found


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise PeerMissingError(f"{command[0]} failed: {done.stderr}")

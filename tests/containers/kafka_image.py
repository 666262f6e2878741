"""Build a local image of Apache Kafka from Maven's jars, with no image registry.

Run as ``python -m tests.containers.kafka_image``. A root tree is made of a Java runtime cut down by jlink, the shared
libraries that it needs, busybox, Kafka's jars and the scripts in ``image/``; the engine imports it as one layer. The
scripts sit where the vendor's image has them, so the stock ``KafkaContainer().with_kraft()`` runs it unchanged.

The tag is a version because testcontainers compares it with 7.0.0. It is numbered as the vendor's platform is:
8.3.1 holds Kafka 4.3.1.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import docker

from sparkonce.jobs.shared.jars import PeerMissingError, cache_directory, copy_artifacts
from tests.containers.engine import EngineMissingError, engine

KAFKA_VERSION = "4.3.1"
REPOSITORY = "sparkonce-kafka"
TAG = "8.3.1"
IMAGE = f"{REPOSITORY}:{TAG}"
# log4j's binding is what brings the log, and in it the line that says that Kafka is up, to the standard output.
ARTIFACTS = (
    ("org.apache.kafka", "kafka_2.13", KAFKA_VERSION),
    ("org.apache.logging.log4j", "log4j-slf4j-impl", "2.24.3"),
)
# java.desktop is there for java.beans, which log4j's core cannot do without.
MODULES = (
    "java.base,java.desktop,java.logging,java.management,java.naming,java.net.http,java.security.jgss,"
    "java.security.sasl,java.sql,java.xml,jdk.crypto.ec,jdk.management,jdk.net,jdk.unsupported"
)
PACKAGES = {
    "jlink": "openjdk-17-jdk-headless",
    "ldd": "libc-bin",
    "busybox": "busybox-static",
    "mvn": "maven",
}
"""The commands that the image is built with, and Debian's packages that have them."""
_LIBRARIES_OF_JARS = ("libpthread.so.0", "libdl.so.2", "libm.so.6", "librt.so.1", "libgcc_s.so.1", "libstdc++.so.6")
_SCRIPTS = Path(__file__).with_name("image")
_RUNTIME = "opt/java"


class ImageError(Exception):
    """The image cannot be built on this machine; the message says what is missing."""


def image() -> str:
    """Name the image to run: ``KAFKA_IMAGE`` if set, else the local one, built now if it is not there.

    Raises:
        EngineMissingError, ImageError, PeerMissingError: where that cannot be.
    """
    chosen = os.environ.get("KAFKA_IMAGE")
    if chosen:
        return chosen
    with _engine_and_tools() as client:
        if not client.images.list(name=IMAGE):
            build(client)
    return IMAGE


@contextmanager
def _engine_and_tools() -> Iterator[docker.DockerClient]:
    """Yield a client of the Docker engine; where none answers, name the tools that are missing too."""
    try:
        with engine() as client:
            yield client
    except EngineMissingError as error:
        raise EngineMissingError("\n".join([str(error), *missing_tools()])) from error


def build(client: docker.DockerClient) -> None:
    """Build the image and have the engine import it under `IMAGE`.

    Raises:
        ImageError: where tools are missing, all of them named.
        PeerMissingError: where Kafka's jars cannot be had.
    """
    if missing := missing_tools():
        raise ImageError("\n".join(missing))
    started = time.monotonic()
    _say(f"Kafka {KAFKA_VERSION} from Maven")
    jars = _jars()
    copy_artifacts(jars, ARTIFACTS)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "root")
        _say("a Java runtime from jlink")
        _runtime(root)
        _say("libraries, busybox, scripts")
        _libraries(root)
        _busybox(root)
        _kafka(root, jars)
        _say("import into the engine")
        layer = Path(folder, "layer.tar")
        with tarfile.open(layer, "w") as archive:
            archive.add(root, arcname=".", filter=_owned_by_root)
        client.api.import_image(
            str(layer), repository=REPOSITORY, tag=TAG,
            changes=[
                f"ENV PATH=/{_RUNTIME}/bin:/usr/bin:/bin", "EXPOSE 9092 9093", 'CMD ["/etc/confluent/docker/run"]',
            ],
        )  # fmt: skip
    size_mb = client.images.get(IMAGE).attrs["Size"] / 1e6
    _say(f"{IMAGE}, {size_mb:.0f} MB, in {time.monotonic() - started:.0f} s")


def _jars() -> Path:
    return cache_directory() / f"kafka-image-{KAFKA_VERSION}"


def missing_tools() -> list[str]:
    """Return what this machine lacks to build the image, each with how to get it; Docker's engine is not looked for."""
    if platform.system() != "Linux":
        return [
            "The local image takes its libraries from this machine, which has to be a Linux. "
            "Use the vendor's: KAFKA_IMAGE=confluentinc/cp-kafka:8.0.0"
        ]
    problems = [
        f"{command} is missing: apt-get install {package} (or set KAFKA_IMAGE to an image)"
        for command, package in PACKAGES.items()
        if _find(command) is None and not (command == "mvn" and _jars().exists())
    ]
    busybox = _find("busybox")
    if busybox and _is_linked(busybox):
        problems.append(f"{busybox} is not static: apt-get install busybox-static")
    return problems


def _is_linked(binary: str) -> bool:
    return (
        _find("ldd") is not None
        and "=>" in subprocess.run([_command("ldd"), binary], capture_output=True, text=True, check=False).stdout
    )


def _find(command: str) -> str | None:
    home, java = os.environ.get("JAVA_HOME"), shutil.which("java")
    places = [
        f"{home}/bin" if home else "",
        os.environ.get("PATH", ""),
        str(Path(java).resolve().parent) if java else "",
    ]
    return shutil.which(command, path=os.pathsep.join(filter(None, places)))


def _command(name: str) -> str:
    found = _find(name)
    assert found is not None, name
    return found


def _runtime(root: Path) -> None:
    target = root / _RUNTIME
    target.parent.mkdir(parents=True)
    leave_out = ("--strip-java-debug-attributes", "--no-header-files", "--no-man-pages", "--compress=1")
    _run(_command("jlink"), "--add-modules", MODULES, "--output", str(target), *leave_out)
    # jlink leaves out the archive of Java's own classes, which saves half a second at each start.
    _run(str(target / "bin" / "java"), "-Xshare:dump")


def _libraries(root: Path) -> None:
    """Copy what the runtime's binaries link to, under the same paths; `ldd` follows the links of links."""
    runtime = root / _RUNTIME
    binaries = [runtime / "bin" / "java", *runtime.glob("lib/**/*.so")]
    wanted: set[str] = set()
    for binary in binaries:
        wanted.update(re.findall(r"(/\S+) \(0x", _run("ldd", str(binary))))
    # Kafka's compression libraries are unpacked from jars at run time, out of ldd's sight; these are what they link to.
    wanted.update(_system_libraries(*_LIBRARIES_OF_JARS))
    for library in sorted(wanted):
        if library.startswith(str(runtime)):
            continue
        copy = root / library.lstrip("/")
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(library, copy)


def _system_libraries(*names: str) -> Iterator[str]:
    ldconfig = shutil.which("ldconfig", path=os.environ.get("PATH", "") + ":/sbin:/usr/sbin")
    cache = _run(ldconfig, "-p") if ldconfig else ""
    for name in names:
        found = re.search(rf"^\s*{re.escape(name)} \([^)]*x86-64[^)]*\) => (\S+)", cache, re.MULTILINE) or re.search(
            rf"^\s*{re.escape(name)} .* => (\S+)", cache, re.MULTILINE
        )
        if found:
            yield found[1]


def _busybox(root: Path) -> None:
    busybox = _command("busybox")
    binaries = root / "bin"
    binaries.mkdir(exist_ok=True)
    shutil.copy2(busybox, binaries / "busybox")
    for applet in _run(busybox, "--list").split():
        if applet != "busybox":
            (binaries / applet).symlink_to("busybox")


def _kafka(root: Path, jars: Path) -> None:
    shutil.copytree(jars, root / "opt/kafka/libs", ignore=shutil.ignore_patterns(".*"))
    places = {
        "etc/confluent/docker": ("bash-config", "configure", "launch", "run"),
        "usr/bin": ("kafka-storage",),
        "etc/kafka": ("log4j2.properties",),
    }
    for folder, names in places.items():
        (root / folder).mkdir(parents=True, exist_ok=True)
        for name in names:
            shutil.copy(_SCRIPTS / name, root / folder / name)
            (root / folder / name).chmod(0o644 if name.endswith(".properties") else 0o755)
    for folder in ("tmp", "proc", "sys", "dev", "var/lib/kafka/data"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    (root / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    (root / "etc/nsswitch.conf").write_text("hosts: files dns\n")


def _owned_by_root(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = "root"
    return member


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        last = (done.stdout + done.stderr).strip().splitlines()[-1:] or ["no output"]
        raise ImageError(f"{Path(command[0]).name} failed with {done.returncode}: {last[0]}")
    return done.stdout


def _say(step: str) -> None:
    print(f"kafka-image: {step}", file=sys.stderr, flush=True)


def main() -> int:
    """Build the image; returns 0 if it is there, 1 if it cannot be built, 2 if no engine answers."""
    try:
        with _engine_and_tools() as client:
            build(client)
    except EngineMissingError as error:
        print(error, file=sys.stderr)
        return 2
    except (ImageError, PeerMissingError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

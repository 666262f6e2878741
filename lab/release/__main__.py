"""Make a release from the last commit, into dist/: ``python -m lab.release``, or ``make release``.

Source distribution and wheel, the wheel tried in empty environments, the site, a container image, a list of all
packages with their licences, and checksums. Nothing is published. With ``--tag`` the commit gets its tag, if the
changelog has the date. The exit code is 1 if anything is missing.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from lab.release.agreement import UNRELEASED, ReleaseError, Version, version_of
from lab.release.bill import licences_of, table, unreviewed

PROJECT = Path(__file__).resolve().parents[2]
EXTRAS = "broker,completion,connectors,otel,registry,registry-server,spark,sql,ui,zookeeper"
"""Those that users install; the bill of materials has the packages of all."""
TOOLS = ("build", "cyclonedx-bom")
CHECKSUMS = "SHA256SUMS"
PYTHONS = ("python3.11", "python3.12", "python3.13", "python3.14")
SPARKS = ("4.2.1", "4.3.0")


@dataclass(slots=True)
class Release:
    """What is made, and what could not be."""

    version: Version
    commit: str
    source: Path
    """The files of the commit, alone."""
    dist: Path
    """Where it is made."""
    missing: list[str] = field(default_factory=list)

    def named(self, ending: str) -> Path:
        """Return the path of one file of the release."""
        return self.dist / f"sparkonce-{self.version.number}{ending}"

    def publish(self, folder: Path) -> list[Path]:
        """Move the files of the release into a folder, and return them; those of the same names are replaced."""
        folder.mkdir(parents=True, exist_ok=True)
        return [Path(shutil.move(file, folder / file.name)) for file in sorted(self.dist.iterdir())]

    @property
    def wheel(self) -> Path:
        """The wheel."""
        return self.named("-py3-none-any.whl")


def main(arguments: Sequence[str]) -> int:
    """Make all parts, one after the other."""
    options = _parser().parse_args(arguments)
    try:
        version = version_of(PROJECT)
        if changes := _git("status", "--porcelain"):
            raise ReleaseError(f"a release is made from a commit, and these files are changed:\n{changes}")
        if options.tag and version.date == UNRELEASED:
            raise ReleaseError(f"CHANGELOG.md says {UNRELEASED}: put the date there, commit, and tag then")
        if options.tag and _git("tag", "--list", version.tag):
            raise ReleaseError(f"{version.tag} is there already: a release is not replaced, choose the next number")
        with tempfile.TemporaryDirectory(prefix="sparkonce-release-") as name:
            release = Release(version, _git("rev-parse", "HEAD"), Path(name) / "source", Path(name) / "dist")
            _make(release, Path(name) / "tools", options)
            for file in release.publish(options.dist):
                print(f"{file.stat().st_size / 1e6:10.1f} MB  {file.name}")
        if options.tag and not release.missing:
            _git("tag", "--annotate", version.tag, release.commit, "--message", f"sparkonce {version.number}")
    except (ReleaseError, subprocess.CalledProcessError) as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    print(*(f"missing: {each}" for each in release.missing), sep="\n")
    print(f"RELEASE version={version.number} date={version.date} missing={len(release.missing)}")
    return 1 if release.missing else 0


def _make(release: Release, tools: Path, options: argparse.Namespace) -> None:
    _export(release.commit, release.source)
    release.dist.mkdir()
    steps: Mapping[str, Callable[[], None]] = {
        "wheel": partial(_distributions, release, tools),
        "bill": partial(_bill, release, tools),
        "site": partial(_site, release),
        "trial": partial(_trial, release, options.python or PYTHONS, options.spark or SPARKS),
        "image": partial(_image, release, options.base),
    }
    for number, (name, step) in enumerate(steps.items(), 1):
        print(f"[{number}/{len(steps)}] {name}{' is left out' if name in options.without else ''}", flush=True)
        if name in options.without:
            release.missing.append(f"{name}: left out")
        else:
            step()
    _checksums(release)


def _export(commit: str, folder: Path) -> None:
    """Write the files of a commit into a folder."""
    folder.mkdir()
    archive = subprocess.run(["git", "archive", commit], cwd=PROJECT, check=True, capture_output=True).stdout
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive, check=True)


def _distributions(release: Release, tools: Path) -> None:
    """Build the source distribution, and the wheel from it: so both are complete."""
    venv.create(tools, with_pip=True)
    _pip(tools, "-c", str(release.source / "constraints.txt"), *TOOLS)
    built = {"SOURCE_DATE_EPOCH": _git("log", "-1", "--format=%ct", release.commit)}
    _run([f"{tools}/bin/python", "-m", "build", "--outdir", str(release.dist), str(release.source)], built, quiet=True)
    if not release.wheel.exists():
        raise ReleaseError(
            f"the build has no {release.wheel.name}, but {[each.name for each in release.dist.iterdir()]}"
        )


def _bill(release: Release, tools: Path) -> None:
    """Install the wheel with all extras into an empty environment, and list what is there."""
    environment = tools.with_name("environment")
    venv.create(environment, with_pip=False)
    constraints = ["-c", str(release.source / "constraints.txt")]
    _pip(tools, "--python", str(environment), *constraints, f"{release.wheel}[{EXTRAS}]")
    bill = release.named(".cdx.json")
    _run([f"{tools}/bin/cyclonedx-py", "environment", "--output-file", str(bill), str(environment)])
    packages = licences_of(bill)
    release.named("-licences.md").write_text(table(packages))
    for name, _, licence in packages:
        if unreviewed(licence):
            release.missing.append(f"bill: somebody has looked at the licence of {name}: {licence}")


def _site(release: Release) -> None:
    site = release.source / "site"
    _run([sys.executable, str(release.source / "docs/build.py"), str(site)])
    shutil.make_archive(str(release.named("-site")), "zip", site)


def _trial(release: Release, pythons: Sequence[str], sparks: Sequence[str]) -> None:
    """Use the wheel in an empty environment for each Python that is there, with each Spark."""
    there = [each for each in pythons if _answers([each, "-c", "import ensurepip"])]
    release.missing += [f"trial: no {each} with ensurepip is on the PATH" for each in pythons if each not in there]
    chosen = [word for each in there for word in ("--python", each)] + [
        word for each in sparks for word in ("--spark", each)
    ]
    if there:
        _run([sys.executable, "-m", "tests.versions.run", "--wheel", str(release.wheel), *chosen])


def _image(release: Release, base: str | None) -> None:
    """Build the image of deploy/docker with this wheel, and save it."""
    if not _answers(["docker", "version"]):
        release.missing.append("image: no Docker engine answers")
        return
    shutil.copy(release.wheel, release.source / "deploy/docker/wheels")
    name = f"sparkonce:{release.version.number}"
    chosen = ["--build-arg", f"BASE={base}"] if base else []
    _run(
        [
            "docker",
            "build",
            "-q",
            "-f",
            f"{release.source}/deploy/docker/Dockerfile",
            "-t",
            name,
            *chosen,
            str(release.source),
        ]
    )
    with subprocess.Popen(["docker", "save", name], stdout=subprocess.PIPE) as saving:
        assert saving.stdout is not None
        with gzip.open(release.named("-image.tar.gz"), "wb", compresslevel=3) as file:
            shutil.copyfileobj(saving.stdout, file)
    if saving.returncode:
        raise ReleaseError(f"docker save {name} has failed")


def _checksums(release: Release) -> None:
    lines = []
    for file in sorted(release.dist.iterdir()):
        with file.open("rb") as content:
            lines.append(f"{hashlib.file_digest(content, 'sha256').hexdigest()}  {file.name}\n")
    (release.dist / CHECKSUMS).write_text("".join(lines))


def _pip(environment: Path, *words: str) -> None:
    python, *rest = (f"{environment}/bin/python", "-m", "pip", "--quiet", "--disable-pip-version-check")
    where = [words[0], words[1]] if words[0] == "--python" else []
    _run([python, *rest, *where, "install", *words[len(where) :]])


def _run(command: Sequence[str], more: Mapping[str, str] | None = None, *, quiet: bool = False) -> None:
    where = subprocess.DEVNULL if quiet else None
    subprocess.run(command, cwd=PROJECT, env={**os.environ, **(more or {})}, stdout=where, check=True)


def _answers(command: Sequence[str]) -> bool:
    return shutil.which(command[0]) is not None and subprocess.run(command, capture_output=True).returncode == 0


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=PROJECT, check=True, capture_output=True, text=True).stdout.strip()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m lab.release", description=__doc__.split("\n\n")[0])
    parser.add_argument(
        "--dist", type=Path, default=PROJECT / "dist", help="where it goes; files of the same names are replaced"
    )
    parser.add_argument("--tag", action="store_true", help="give the commit its tag, with the date of the changelog")
    parser.add_argument("--python", action="append", metavar="PATH", help=f"default: {', '.join(PYTHONS)}")
    parser.add_argument("--spark", action="append", metavar="VERSION", help=f"default: {', '.join(SPARKS)}")
    parser.add_argument("--base", metavar="IMAGE", help="the image that the container's begins with")
    parser.add_argument("--without", action="append", default=[], choices=("bill", "site", "trial", "image"))
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

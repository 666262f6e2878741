"""What `make release` makes of a commit, and what keeps it from doing so."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from lab.release.agreement import ReleaseError, version_of
from lab.release.bill import licences_of, table, unreviewed
from tests.wheel import PROJECT, build_wheel

FILES = ("pyproject.toml", "CHANGELOG.md", "SECURITY.md")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name in FILES:
        shutil.copy(PROJECT / name, tmp_path)
    return tmp_path


@pytest.mark.timeout(600)
def test_the_wheel_of_a_release_is_that_of_the_checkout(tmp_path: Path) -> None:
    clone, dist = tmp_path / "clone", tmp_path / "dist"
    subprocess.run(["git", "clone", "--quiet", str(PROJECT), str(clone)], check=True)
    dist.mkdir()
    (dist / "sparkonce-0.0.1.tar.gz").write_text("of an earlier release")
    without = [word for name in ("bill", "site", "trial", "image") for word in ("--without", name)]
    command = [sys.executable, "-m", "lab.release", "--dist", str(dist), *without]
    ended = subprocess.run(command, cwd=clone, capture_output=True, text=True, check=False)
    assert ended.returncode == 1, ended.stderr
    version = version_of(PROJECT)
    assert f"RELEASE version={version.number} date={version.date} missing=4" in ended.stdout
    names = {f"sparkonce-{version.number}.tar.gz", f"sparkonce-{version.number}-py3-none-any.whl"}
    assert {each.name for each in dist.iterdir()} == {*names, "SHA256SUMS", "sparkonce-0.0.1.tar.gz"}
    subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=dist, check=True)
    made, expected = (zipfile.ZipFile(each) for each in (next(dist.glob("*.whl")), build_wheel(tmp_path / "wheel")))
    assert sorted(made.namelist()) == sorted(expected.namelist())
    (clone / "README.md").write_text("changed")
    changed = subprocess.run(command, cwd=clone, capture_output=True, text=True, check=False)
    assert "a release is made from a commit, and these files are changed:\nM README.md" in changed.stderr


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("pyproject.toml", 'version = "', 'version = "9', "and CHANGELOG.md has .* first: begin it with a section"),
        ("CHANGELOG.md", "## ", "## Version ", "and CHANGELOG.md has no section"),
        ("SECURITY.md", "| yes |", "| no |", "does not say that .* gets fixes"),
    ],
)
def test_files_that_do_not_agree(project: Path, file: str, old: str, new: str, message: str) -> None:
    assert version_of(project) == version_of(PROJECT)
    text = (project / file).read_text()
    (project / file).write_text(text.replace(old, new))
    with pytest.raises(ReleaseError, match=message):
        version_of(project)


def test_licences(tmp_path: Path) -> None:
    bill = tmp_path / "bill.json"
    given = {
        "b": [{"license": {"id": "MIT"}}, {"license": {"name": "License :: MIT"}}],
        "a": [{"expression": "Apache-2.0 OR BSD-3-Clause"}],
        "e": [{"license": {"id": "MIT"}}, {"license": {"name": "Proprietary"}}],
        "c": [{"license": {"name": "its own"}}],
    }
    components = [{"name": name, "version": "1", "licenses": licences} for name, licences in given.items()]
    bill.write_text(json.dumps({"components": components}))
    packages = licences_of(bill)
    assert packages == [
        ("a", "1", "Apache-2.0 OR BSD-3-Clause"),
        ("b", "1", "MIT"),
        ("c", "1", "its own"),
        ("e", "1", "MIT AND Proprietary"),
    ]
    assert [unreviewed(licence) for *_, licence in packages] == [False, False, True, True]
    assert "| b | 1 | MIT |" in table(packages)
    bill.write_text(json.dumps({"components": [{"name": "d", "version": "1", "licenses": []}]}))
    with pytest.raises(ReleaseError, match="d: the package names no licence"):
        licences_of(bill)

"""Install the wheel into empty environments and use it there: ``python -m tests.versions.run --python … --spark …``.

Each Python is combined with each version of PySpark, also one that the distribution's bounds exclude. ``walk.py`` is
what runs there. The exit code is 1 if one combination fails.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.wheel import build_wheel

PROJECT = Path(__file__).resolve().parents[2]
WALK = Path(__file__).with_name("walk.py")
RESULT = re.compile(r"^RESULT (.*)$", re.MULTILINE)


def main(arguments: list[str]) -> int:
    """Run each combination and print a table of them."""
    parser = argparse.ArgumentParser(prog="python -m tests.versions.run", description=__doc__.split("\n\n")[0])
    parser.add_argument("--python", action="append", metavar="PATH", help="an interpreter; default: this one")
    parser.add_argument("--spark", action="append", metavar="VERSION", help="default: the newest that pip chooses")
    parser.add_argument("--wheel", type=Path, metavar="FILE", help="default: one that is built from the checkout")
    chosen = parser.parse_args(arguments)
    outcomes = []
    with tempfile.TemporaryDirectory(prefix="sparkonce-versions-") as name:
        folder = Path(name)
        wheel = chosen.wheel or build_wheel(folder)
        first, *_ = re.findall(r"```python\n(.*?)```", (PROJECT / "docs/first_pipeline.md").read_text(), re.DOTALL)
        (folder / "first_pipeline.py").write_text(first)
        for python in chosen.python or [sys.executable]:
            for spark in chosen.spark or [""]:
                outcomes.append(try_out(folder / f"run-{len(outcomes)}", wheel, python, spark))
                print(outcomes[-1], flush=True)
    print("\n| Python | PySpark | |\n|---|---|---|", *outcomes, sep="\n")
    return int(any("failed" in outcome for outcome in outcomes))


def try_out(folder: Path, wheel: Path, python: str, spark: str) -> str:
    """Return one line of the table."""
    folder.mkdir()
    environment = folder / "environment"
    subprocess.run([python, "-m", "venv", str(environment)], check=True)
    own = str(environment / "bin/python")
    pip = [own, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    if spark:  # as on a platform that brings its own
        subprocess.run([*pip, "--no-deps", f"pyspark=={spark}"], check=True)
        subprocess.run([*pip, "py4j", f"{wheel}[connectors]"], check=True)
    else:
        subprocess.run([*pip, f"{wheel}[spark]"], check=True)
    asked = "import platform, pyspark; print(platform.python_version(), '|', pyspark.__version__)"
    versions = subprocess.run([own, "-c", asked], capture_output=True, text=True, check=True).stdout.strip()
    (folder / "work").mkdir()
    command = [own, str(WALK), str(folder / "work"), str(folder.parent / "first_pipeline.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder / "work")
    result = RESULT.search(done.stdout)
    if done.returncode or result is None:
        print(done.stdout[-2_000:], done.stderr[-4_000:], file=sys.stderr)
        return f"| {versions} | failed |"
    subprocess.run([own, "-m", "pip", "uninstall", "--quiet", "--yes", "sparkonce"], check=True)
    left = subprocess.run([own, "-c", "import sparkonce"], capture_output=True, check=False, cwd=folder / "work")
    return f"| {versions} | {result[1]}{'' if left.returncode else ', failed: pip uninstall leaves the package'} |"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Type what a page shows after `$`, as its reader would, and hold what comes out against what the page shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"


@dataclass(frozen=True)
class Typed:
    """A command, and the lines that the page shows after it; `…` stands for what is left out."""

    command: str
    shown: tuple[str, ...]

    def run(self, folder: Path, **replaced: str) -> subprocess.CompletedProcess[str]:
        """Run it in a folder, with texts of the page replaced, such as the address of the broker."""
        command = self.command
        for old, new in replaced.items():
            command = command.replace(old, new)
        # The commands of this environment come first, as after its activation.
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        environment = os.environ | {"PATH": path}
        return subprocess.run(["bash", "-c", command], cwd=folder, env=environment, capture_output=True, text=True)

    def check(self, output: str) -> None:
        """Require each line that the page shows, with any text in place of `…`, in the same order."""
        rest = [" ".join(line.split()) for line in output.splitlines()]
        for line in self.shown:
            pieces = [re.escape(" ".join(piece.split())) for piece in line.split("…")]
            pattern = re.compile(r"\s?.*\s?".join(pieces))
            found = next((number for number, each in enumerate(rest) if pattern.fullmatch(each)), None)
            assert found is not None, f"`{self.command}` does not print {line!r}, but:\n{output}"
            rest = rest[found + 1 :]


def typed_under(page: str, heading: str | None = None) -> list[Typed]:
    """Return the commands of a page of docs/, or of one of its sections, in their order."""
    text = (DOCS / page).read_text()
    if heading is not None:
        (text,) = re.findall(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    found: list[Typed] = []
    for block in re.findall(r"```console\n(.*?)```", text, re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, *shown = part.splitlines()
            found.append(Typed(command, tuple(line for line in shown if line.strip() not in ("", "…"))))
    return found


def program(page: str, number: int = 0) -> str:
    """Return a block of Python of a page."""
    blocks: list[str] = re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)
    return blocks[number]

"""Reads docs/recovery.md as a script: sections, their variants, and blocks that run or that say what is printed.

Blocks of ``python`` and ``bash`` are run with the page's example names replaced by those of the test. A block of
``text`` after a ``bash`` block is what that prints; the first one of a section is the error that the section is about.
What stands in angle brackets may be anything, and line breaks do not count. Blocks of nothing but our own command run
in this process, which saves the start of a Python for each line; all others run in bash.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
import sys
import uuid
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from sparkonce.jobs.cli.main import main
from tests.spark.source_support import Topics

PAGE = Path(__file__).resolve().parents[2] / "docs" / "recovery.md"
DEFINITIONS = "The pipeline on this page"
COMMAND_DEADLINE_S = 120
SHELL_SYNTAX = frozenset("|&;<>$`*?#\\")
_BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)


@dataclass(frozen=True)
class Block:
    language: str
    text: str


@dataclass(frozen=True)
class Part:
    """One story of the page: a section, or one of the ways out that a section offers."""

    title: str
    error: str | None
    steps: tuple[Block, ...]


def parts(page: str) -> dict[str, Part]:
    """Return every part that has something to run, by ``section`` or ``section / way out``; the beginning is ``""``."""
    found: dict[str, Part] = {}
    sections = [("", page.partition("\n## ")[0]), *_split(page, "## ")]
    for section, text in sections:
        common = _blocks(text.partition("\n### ")[0])
        error = common.pop(0).text if common and common[0].language == "text" else None
        ways = _split(text, "### ")
        assert not (common and ways), f"{section}: blocks that run belong under the ways out"
        for way, way_text in ways or [("", text)]:
            title = f"{section} / {way}" if way else section
            steps = _blocks(way_text) if way else common
            if steps:
                found[title] = Part(title, error, tuple(steps))
    return found


def _split(text: str, mark: str) -> list[tuple[str, str]]:
    pieces = re.split(rf"^{mark}(.+)$", text, flags=re.MULTILINE)
    return list(zip(pieces[1::2], pieces[2::2], strict=True))


def _blocks(text: str) -> list[Block]:
    return [Block(language, body) for language, body in _BLOCK.findall(text)]


def matches(wanted: str, printed: str, *, whole: bool) -> bool:
    """Whether ``printed`` is, or holds, what the page says."""
    pieces = re.split(r"<[^<>]*>", " ".join(wanted.split()))
    pattern = ".*?".join(re.escape(piece) for piece in pieces)
    text = " ".join(printed.split())
    return bool(re.fullmatch(pattern, text) if whole else re.search(pattern, text))


@dataclass
class World:
    """One telling: a topic, a folder, and the page's names in terms of both."""

    spark: SparkSession
    topics: Topics
    folder: Path
    topic: str = field(default_factory=lambda: f"orders-{uuid.uuid4().hex[:8]}")
    values: list[str] = field(default_factory=list)
    names: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.topics.create(1, self.topic)
        (self.folder / "data").mkdir()
        self.names["spark"] = self.spark
        self.run_python(parts(PAGE.read_text())[DEFINITIONS].steps[0].text)

    @property
    def table(self) -> Path:
        return self.folder / "data" / "tables" / "orders"

    def checkpoint(self, name: str = "orders") -> Path:
        return self.folder / "data" / "checkpoints" / name

    def produce(self, count: int, distinct: int | None = None) -> None:
        """Put records into the topic, every one different, or only ``distinct`` different ones over and over."""
        begin = len(self.values)
        values = [f"r{number % distinct if distinct else number}" for number in range(begin, begin + count)]
        self.topics.produce(self.topic, [value.encode() for value in values])
        self.values += values

    def orders(self, **words: Any) -> Any:
        """Start the page's pipeline; places may be named as the page does."""
        return self.names["orders"](
            **{name: self.here(value) if isinstance(value, str) else value for name, value in words.items()}
        )

    def run(self, **words: Any) -> None:
        self.orders(**words).awaitTermination()

    def fails(self, **words: Any) -> str:
        """Start the pipeline, which stops; give its error."""
        return self.failure(self.orders(**words))

    def failure(self, query: Any) -> str:
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            return str(error)
        raise AssertionError("the query did not stop")

    def rows(self, table: Path | None = None) -> list[str]:
        return sorted(DeltaTable(str(table or self.table)).to_pyarrow_table()["value"].to_pylist())

    def here(self, text: str) -> str:
        """Replace the page's example names."""
        for name, meant in self._meanings().items():
            text = text.replace(name, meant)
        return text

    def _meanings(self) -> Mapping[str, str]:
        return {
            "/data/": f"{self.folder}/data/",
            "/backup/": f"{self.folder}/backup/",
            "localhost:9092": self.topics.bootstrap_servers,
            "shop.orders": self.topic,
        }

    def run_python(self, text: str) -> None:
        exec(compile(self.here(text), str(PAGE), "exec"), self.names)

    def run_bash(self, text: str) -> str:
        lines = self.here(text).splitlines()
        if all(line.startswith("sparkonce ") and not SHELL_SYNTAX & set(line) for line in lines):
            return "".join(self.run_command(line) for line in lines)
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        done = subprocess.run(
            ["bash", "-euc", self.here(text)],
            env={**os.environ, "PATH": path, "PYTHONPATH": str(PAGE.parents[1])},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=COMMAND_DEADLINE_S,
            check=False,
        )
        assert done.returncode == 0, f"{text}\n{done.stdout}"
        return done.stdout

    def run_command(self, line: str) -> str:
        """Run one line of our command as a shell would, and return what it prints."""
        with redirect_stdout(io.StringIO()) as printed, redirect_stderr(printed):
            status = main(shlex.split(line)[1:])
        assert status == 0, f"{line}\n{printed.getvalue()}"
        return printed.getvalue()

    def follow(self, part: Part) -> None:
        """Do what the page says, step by step."""
        printed = ""
        for step in part.steps:
            if step.language == "python":
                self.run_python(step.text)
            elif step.language == "bash":
                printed = self.run_bash(step.text)
            else:
                wanted = self.here(step.text)
                assert matches(wanted, printed, whole=True), f"the page says:\n{wanted}\nprinted was:\n{printed}"

"""JAAS lines beside Apache Kafka's own reader."""

from __future__ import annotations

import random
import subprocess
from base64 import b64decode, b64encode
from pathlib import Path

import pytest

from lab.peers import kafka_classpath, missing_kafka_reason
from sparkonce.jobs.shared.jars import java_command
from sparkonce.kafka.jaas import JaasError, read_jaas
from tests.interop.tools import JAVA_OPTIONS

pytestmark = pytest.mark.java
PROGRAM = Path(__file__).parent / "KafkaJaas.java"
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SEED, LINES = 11, 20_000
VALUES = (
    '"\\101b\\x"', "'it\"s'", '"a\\"b"', "plain", "a-b_c$", "1st", '"é 野 😀"', "é", '"\\400\\8"', '"end', "a/b",
    '"//"',
)  # fmt: skip
PIECES = (
    *VALUES, " ", "\n", "\t", "=", ";", "/", "//", "/*", "*/", '"', "'", "\\", "-", ".", "7", "\\7", "$", "_", "#", ",",
    "\x7f", "\x85", "\xa0", "\u3000", "required", "user_a", "user_b=", "password=", "REQUISITE", "requ\u0131red",
    "x.Module", "\\\n", "\r",
)  # fmt: skip


def lines() -> list[str]:
    """Return a line for each value, and lines with random edits."""
    rng, made = random.Random(SEED), [f"{MODULE} required user_a={value} password={value};" for value in VALUES]
    while len(made) < LINES:
        pieces = [
            MODULE,
            " ",
            "required",
            " ",
            "user_a",
            "=",
            rng.choice(VALUES),
            " ",
            "b",
            "=",
            rng.choice(VALUES),
            ";",
        ]
        for _ in range(rng.randint(0, 4)):
            at = rng.randrange(len(pieces) + 1)
            pieces[at : at + rng.randint(0, 1)] = [rng.choice(PIECES)]
        made.append("".join(pieces))
    return made


def ours(line: str) -> str:
    try:
        module = read_jaas(line)
    except JaasError:
        return "refused"
    return " ".join([module.name, *(f"{name}:{module.options[name]}" for name in sorted(module.options))])


def test_lines_are_read_as_kafka_reads_them() -> None:
    reason, classpath = missing_kafka_reason(), kafka_classpath()
    if classpath is None:
        pytest.skip(str(reason))
    asked = lines()
    done = subprocess.run(
        [java_command(), *JAVA_OPTIONS, "-cp", classpath, str(PROGRAM)],
        input="\n".join(b64encode(line.encode()).decode() for line in asked) + "\n",
        capture_output=True, text=True, check=True, timeout=200,
    )  # fmt: skip
    theirs = [
        answer
        if answer == "refused"
        else " ".join(":".join(b64decode(part).decode() for part in word.split(":")) for word in answer.split(" "))
        for answer in done.stdout.splitlines()
    ]
    assert len(theirs) == len(asked)
    assert [(line, kafka, ours(line)) for line, kafka in zip(asked, theirs, strict=True) if ours(line) != kafka] == []
    assert sum(answer != "refused" for answer in theirs) > LINES // 10

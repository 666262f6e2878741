"""`sparkonce.explain`: one line, with what to do where Spark's own message does not say it."""

from __future__ import annotations

from sparkonce import explain
from sparkonce.connectors.ingest.restarts import is_outage
from tests.cases import each_case

STREAM = "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception:"
NOT_FOUND = "[DATA_SOURCE_NOT_FOUND] Failed to find the data source: %s. Make sure the provider name is correct"
KAFKA = "no answer from Kafka at localhost:1 within 10000 ms. Check that a broker listens there"


@each_case(
    ("text", "line"),
    [
        (
            f"{STREAM} Traceback (most recent call last):\n  File a.py\nsparkonce.x.KafkaUnreachableError: {KAFKA}\n"
            "\tat org.apache.spark.A.a(A.scala:1)\n\n=== Streaming Query ===\nIdentifier: q",
            f"KafkaUnreachableError: {KAFKA}",
        ),
        (
            f"An error occurred while calling o1.start.\n: org.a.NotFoundError: {NOT_FOUND % 'delta_once'}\n\tat a",
            f"NotFoundError: {NOT_FOUND % 'delta_once'}. A thread that did not start Spark calls sparkonce.register",
        ),
        (
            "Traceback (most recent call last):\n  File a.py\npy4j.protocol.Py4JJavaError: An error occurred while "
            "calling o185.save.\n: org.a.SparkException: Job aborted\n\tat a\nCaused by: org.a.DeltaError: "
            "[DELTA_VIOLATE_CONSTRAINT] c (v > 0) violated\n\tat b\nCaused by: org.a.Other: so\n",
            "DeltaError: [DELTA_VIOLATE_CONSTRAINT] c (v > 0) violated",
        ),
        (
            "An error occurred while calling o1.save.\nno trace",
            "RuntimeError: An error occurred while calling o1.save.",
        ),
        (NOT_FOUND % "iceberg", f"RuntimeError: {NOT_FOUND % 'iceberg'}"),
        (
            f"{STREAM} No space left on device SQLSTATE: XXKST\n=== Streaming Query ===",
            f"RuntimeError: {STREAM} No space left on device SQLSTATE: XXKST. A disk is full, which may be that of the",
        ),
        (
            "Traceback (most recent call last):\nOffsetStoreError: /t: No space left on device. The disk of /t is full",
            "OffsetStoreError: /t: No space left on device. The disk of /t is full",
        ),
    ],
)
def test_one_line_and_what_to_do(text: str, line: str) -> None:
    said = explain(RuntimeError(text))
    assert said.startswith(line)
    assert len(said.splitlines()) == 1
    assert ("register" in said, "A disk" in said) == ("register" in line, "A disk" in line)


def test_a_value_that_quotes_an_error_is_no_outage() -> None:
    name = "sparkonce.kafka.client.client.KafkaUnreachableError"
    for text, expected in (
        (f"Traceback (most recent call last):\n  File a.py\n{name}: no answer\n", True),
        (f"Caused by: org.a.PythonException: {name}: no answer", True),
        (f"Traceback (most recent call last):\nsparkonce.values.DecodeError: value '{name}: x' is no JSON", False),
    ):
        assert is_outage(RuntimeError(text)) is expected, text

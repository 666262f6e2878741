"""`sparkonce doctor`: what it says of brokers, tables and checkpoints, on real ones, and that it leaves no trace."""

from __future__ import annotations

import errno
import json
import socket
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from deltalake import DeltaTable, write_deltalake
from pyarrow.fs import FileSelector

from lab.store.s3 import SECRET, open_s3
from sparkonce import EmbeddedBroker
from sparkonce.connectors.runtime.spark_version import complaint
from sparkonce.jobs.cli.doctor import spark
from sparkonce.jobs.cli.doctor.findings import State
from sparkonce.jobs.cli.doctor.stores import PROBE
from sparkonce.jobs.cli.doctor.worker_checks import Endpoints, look
from sparkonce.jobs.cli.doctor.workers import reason
from sparkonce.jobs.cli.main import main
from sparkonce.offset_store.locations import Location
from tests.cases import each_case

DEADLINE_S = 60
AUTHORIZED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}


def lines(capsys: pytest.CaptureFixture[str], *words: str, status: int) -> dict[str, str]:
    """Run the command without Spark, and return what it says of each thing: its lines, joined."""
    assert main(["doctor", "--without-spark", *words]) == status
    found: dict[str, str] = {}
    for line in capsys.readouterr().out.splitlines()[:-1]:
        state, _, rest = line.partition(" ")
        what, _, said = rest.lstrip().partition(": ")
        found[what] = f"{found.get(what, '')}{state}: {said}\n"
    return found


def test_the_machine_that_runs_these_tests_is_fit(capsys: pytest.CaptureFixture[str]) -> None:
    found = lines(capsys, status=0)
    assert set(found) == {"Python", "PySpark", "packages", "Java"}
    assert all(text.startswith("ok:") for text in found.values())


@each_case("missing", ["pyspark", "pyarrow", "deltalake", "numba", "kafka"])
def test_a_package_that_is_missing_is_named_with_what_installs_it(missing: str) -> None:
    command = "from sparkonce.jobs.cli import main; sys.exit(main.main(['doctor']))"
    code = f"import sys; sys.modules[{missing!r}] = None; {command}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (1, "")
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("WRONG"))
    extra = "spark" if missing == "pyspark" else "connectors"
    assert line.endswith(f" pip install 'sparkonce[{extra}]'"), line
    assert "warning the rest: not checked. Put the" in done.stdout


def test_brokers_and_topics(kafka_broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str]) -> None:
    servers = kafka_broker.bootstrap_servers
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic("there", 3)])["there"].result(DEADLINE_S)
    words = ["--bootstrap-servers", servers, "--topic", "there", "--topic", "nowhere"]
    found = lines(capsys, *words, status=1)
    assert found["Kafka"].endswith(", 1 broker\n")
    assert f"ok: {servers}" in next(text for what, text in found.items() if what.startswith("broker"))
    assert found["topic there"] == "ok: 3 partitions, this user may read and write\n"
    assert found["topic nowhere"] == "WRONG: it does not exist. Create it, or correct the name\n"
    assert "nowhere" not in admin.list_topics(timeout=DEADLINE_S).topics


def test_what_a_user_may_not_do(capsys: pytest.CaptureFixture[str]) -> None:
    with EmbeddedBroker(config=AUTHORIZED) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        admin.create_topics([NewTopic("t", 1)])["t"].result(DEADLINE_S)
        words = ["--bootstrap-servers", broker.bootstrap_servers, "--topic", "t"]

        def rule(operation: AclOperation, permission: AclPermissionType) -> None:
            of_topic = (ResourceType.TOPIC, "t", ResourcePatternType.LITERAL, "User:*", "*")
            for future in admin.create_acls([AclBinding(*of_topic, operation, permission)]).values():
                future.result(DEADLINE_S)

        rule(AclOperation.ALL, AclPermissionType.ALLOW)
        rule(AclOperation.WRITE, AclPermissionType.DENY)
        found = lines(capsys, *words, status=0)
        assert found["topic t"] == "warning: 1 partition, this user may read only. A sink needs WRITE on it\n"
        rule(AclOperation.READ, AclPermissionType.DENY)
        assert "may neither read nor write" in lines(capsys, *words, status=1)["topic t"]
        rule(AclOperation.DESCRIBE, AclPermissionType.DENY)
        assert "may not see it" in lines(capsys, *words, status=1)["topic t"]


def test_no_broker_there(capsys: pytest.CaptureFixture[str]) -> None:
    quick = ["--kafka", "socket.connection.setup.timeout.ms=500"]
    found = lines(capsys, "--bootstrap-servers", "127.0.0.1:1", *quick, status=1)
    assert found["Kafka"].startswith("WRONG: no answer from Kafka at ")


def test_a_broker_that_tells_an_address_for_others(capsys: pytest.CaptureFixture[str]) -> None:
    with EmbeddedBroker() as first:
        place = first.bootstrap_servers
    settings = {"listeners": f"PLAINTEXT://{place}", "advertised.listeners": "PLAINTEXT://127.0.0.1:1"}
    with EmbeddedBroker(config=settings) as broker:
        assert broker.bootstrap_servers == "127.0.0.1:1"
        found = lines(capsys, "--bootstrap-servers", place, status=1)["broker 0"]
    assert found.startswith("WRONG: it advertises 127.0.0.1:1, which cannot be reached from this machine")
    assert "advertised.listeners" in found


def test_a_topic_needs_brokers_and_settings_are_checked(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--topic", "t"]) == 2
    assert main(["doctor", "--bootstrap-servers", "127.0.0.1:1", "--kafka", "no.such=1"]) == 2


def test_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing, plain, constrained = tmp_path / "a" / "missing", tmp_path / "plain", tmp_path / "constrained"
    for place in (plain, constrained):
        write_deltalake(place, pa.table({"n": [1]}))
    DeltaTable(constrained).alter.add_constraint({"positive": "cbrt(n) > 0"})
    before = sorted(tmp_path.rglob("*"))
    assert lines(capsys, "--table", str(missing), status=0)["table"].count("ok:") == 2
    assert (
        f"ok: {plain}, version 0\nok: {plain} can be written to"
        in lines(capsys, "--table", str(plain), status=0)["table"]
    )
    found = lines(capsys, "--table", str(constrained), status=1)["table"]
    assert found.startswith(f"WRONG: {constrained}, version 1: it has the check constraint positive (")
    (tmp_path / "plain" / "_delta_log" / "00000000000000000001.json").write_text("{not json")
    assert lines(capsys, "--table", str(plain), status=1)["table"].startswith("WRONG:")
    (tmp_path / "plain" / "_delta_log" / "00000000000000000001.json").unlink()
    assert sorted(tmp_path.rglob("*")) == before
    (file := tmp_path / "file").touch()
    assert "is not a folder" in lines(capsys, "--table", str(file / "table"), status=1)["table"]
    assert f"{file} is a file, not a folder" in lines(capsys, "--table", str(file), status=1)["table"]


def test_checkpoints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = tmp_path / "checkpoint"
    words = ["--checkpoint", str(place)]
    assert "none at" in lines(capsys, *words, status=0)["checkpoint"]
    (file := tmp_path / "file").touch()
    assert f"{file} is a file, not a folder" in lines(capsys, "--checkpoint", str(file), status=1)["checkpoint"]
    for name in ("offsets", "commits"):
        (place / name).mkdir(parents=True)
    (place / "metadata").write_text(json.dumps({"id": "q"}))
    assert f"ok: {place}, query q, no batch yet" in lines(capsys, *words, status=0)["checkpoint"]
    (place / "offsets" / "0").write_text('v1\n{}\n{"0":1}')
    assert "last batch 0, which is not finished" in lines(capsys, *words, status=0)["checkpoint"]
    (place / "commits" / "0").write_text("v1\n{}")
    assert "last batch 0\n" in lines(capsys, *words, status=0)["checkpoint"]
    (place / "offsets" / "1").write_text("v9\n")
    assert "reads v1 and v2" in lines(capsys, *words, status=1)["checkpoint"]
    (place / "metadata").write_text("{}")
    assert "holds no query id" in lines(capsys, *words, status=1)["checkpoint"]


def test_a_table_and_a_checkpoint_in_an_object_store(capsys: pytest.CaptureFixture[str]) -> None:
    with open_s3() as store:
        words = [word for name, value in store.storage_options.items() for word in ("--storage", f"{name}={value}")]
        places = ["--table", "s3://bucket/new/table", "--checkpoint", "s3a://bucket/new/checkpoint"]
        found = lines(capsys, *places, *words, status=0)
        assert found["table"].count("ok:") == found["checkpoint"].count("ok:") == 2
        assert SECRET not in str(found)
        filesystem, _ = Location.parse("s3://bucket").filesystem(store.storage_options)
        left = filesystem.get_file_info(FileSelector("", recursive=True, allow_not_found=True))
    assert [info.path for info in left if PROBE in info.path] == []


def test_a_probe_that_cannot_be_written_is_not_left(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sparkonce", "doctor", "--without-spark", "--table", str(tmp_path / "table")]
    done = subprocess.run(
        ["bash", "-c", "trap '' XFSZ; ulimit -f 0; exec \"$@\" | cat", "bash", *command], capture_output=True, text=True
    )
    assert f"WRONG   table: {tmp_path} cannot be written to" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_what_the_sink_refuses_is_wrong_here(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    forgetful, odd = tmp_path / "forgetful", tmp_path / "odd"
    retention = {"delta.setTransactionRetentionDuration": "interval 1 days"}
    write_deltalake(forgetful, pa.table({"n": [1]}), configuration=retention)
    assert "setTransactionRetentionDuration" in lines(capsys, "--table", str(forgetful), status=1)["table"]
    odd.mkdir()
    (odd / "_delta_log").touch()
    assert "_delta_log is a file" in lines(capsys, "--table", str(odd), status=1)["table"]
    checked = tmp_path / "checked"
    write_deltalake(checked, pa.table({"n": [1]}))
    DeltaTable(checked).alter.add_constraint({"positive": "cbrt(n) > 0"})
    found = lines(capsys, "--table", str(checked), status=1)["table"]
    assert "the check constraint positive (cbrt(n) > 0), which delta_once cannot check: function cbrt" in found
    assert "have Spark check and compute that: sparkonce.write_stream" in found


def test_no_secret_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    storage = {"AWS_SECRET_ACCESS_KEY": "hunter2hunter2", "AWS_ACCESS_KEY_ID": "me", "AWS_REGION": "eu-west-1"}
    place = ["--table", "s3://bucket/table", "--storage", "AWS_ENDPOINT_URL=http://127.0.0.1:1"]
    words = [word for name, value in storage.items() for word in ("--storage", f"{name}={value}")]
    quick = ["--storage", "AWS_ALLOW_HTTP=true", "--storage", "max_retries=0"]
    found = lines(capsys, *place, *words, *quick, status=1)["table"]
    assert found.startswith("WRONG:")
    assert found.endswith("and the network from this machine\n")
    assert "hunter2hunter2" not in found
    in_address = ["--table", "s3://me:hunter2hunter2@bucket/table", *words, *place[2:], *quick]
    assert "hunter2hunter2" not in lines(capsys, *in_address, status=1)["table"]


@pytest.mark.parametrize(
    ("version", "fits"), [("4.1.1", False), ("3.5.3", False), ("4.2.0.dev1", True), ("5.0.0", True)]
)
def test_which_versions_of_spark_fit(version: str, fits: bool) -> None:
    assert (complaint(version) is None) == fits


def test_an_older_spark_ends_in_a_sentence() -> None:
    code = "import pyspark; pyspark.__version__ = '4.1.1'; import sparkonce.connectors.formats.kafka_once"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    told = "ImportError: sparkonce needs Spark 4.2 or newer, and this is PySpark 4.1.1"
    assert done.stderr.splitlines()[-1] == told


def test_a_connect_server_is_no_master(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--master", "sc://127.0.0.1:1"]) == 2
    assert "run the doctor there, with the server's own master" in capsys.readouterr().err


LOST = (
    "An error occurred while calling o1.collect.\n: org.apache.spark.SparkException: Job aborted due to stage failure: "
    "Lost task 0.3 in stage 1.0 (TID 4) (10.0.0.7 executor 1): "
)
MISMATCH = "pyspark.errors.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.12"
TRACEBACK = 'Traceback (most recent call last):\n  File "worker.py", line 9, in main\n    check(infile)\n'
NO_PROGRAM = 'java.io.IOException: Cannot run program "/opt/python": error=2, No such file'


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (f"{LOST}org.apache.spark.PythonException: {TRACEBACK}{MISMATCH}\n\n\tat org.x\n", f"10.0.0.7: {MISMATCH}"),
        (f"{LOST}{NO_PROGRAM}\n\tat org.x", f"10.0.0.7: {NO_PROGRAM}"),
        ("\nall in one line\n\tat org.y", "all in one line"),
    ],
)
def test_the_reason_of_a_job_that_failed(error: str, said: str) -> None:
    assert reason(RuntimeError(error)) == said


def test_a_worker_looks_at_its_machine(kafka_broker: EmbeddedBroker, tmp_path: Path) -> None:
    kafka = {"kafka.bootstrap.servers": kafka_broker.bootstrap_servers}
    places = Endpoints(kafka, ["nowhere"], str(tmp_path / "table"), str(tmp_path / "checkpoint"))
    found = {what: (state, text) for what, text, state, _ in look(places.as_document())}
    assert found == {
        "machine code": ("ok", "compiled functions run"),
        "topic nowhere": ("WRONG", "it does not exist"),
        "table": ("ok", f"{tmp_path} can be written to"),
        "checkpoint": ("ok", f"{tmp_path} can be written to"),
    }


def test_a_trust_store_that_a_worker_does_not_have(kafka_broker: EmbeddedBroker, tmp_path: Path) -> None:
    kafka = {"kafka.bootstrap.servers": kafka_broker.bootstrap_servers, "kafka.security.protocol": "SSL"}
    places = Endpoints({**kafka, "kafka.ssl.truststore.location": str(tmp_path / "trust.jks")})
    (wrong,) = (text for _, text, state, _ in look(places.as_document()) if state == "WRONG")
    assert f"kafka.ssl.truststore.location={tmp_path / 'trust.jks'} cannot be read on " in wrong
    assert "the file must be on every machine that runs tasks" in wrong


def test_a_master_that_does_not_answer_is_told_before_spark_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")

    monkeypatch.setattr("socket.create_connection", refused)
    (found,) = spark.examine("spark://localhost:7999", Endpoints())
    assert found.state is State.WRONG
    assert found.found == "no master answers at localhost:7999 (Connection refused)"
    assert spark.no_master("spark://localhost") == "'localhost' is not host:port"
    assert spark.no_master("local[2]") is None


def test_one_of_several_masters_is_enough() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert spark.no_master(f"spark://nowhere,127.0.0.1:{server.getsockname()[1]}") is None

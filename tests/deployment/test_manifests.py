"""The files in deploy/: manifests and compose file by their schemas, the service by systemd, the image by a linter."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pyspark
import pytest
import yaml
from jsonschema import Draft202012Validator

PROJECT = Path(__file__).resolve().parents[2]
DEPLOY = PROJECT / "deploy"
MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
DOCKER = DEPLOY / "docker"
COMPOSE = DOCKER / "compose.yaml"
COMPOSE_SCHEMA = "github.com/compose-spec/compose-go/v2@v2.9.0"
OPERATOR = "github.com/kubeflow/spark-operator/v2@v2.3.0"
CRD = Path("config", "crd", "bases", "sparkoperator.k8s.io_sparkapplications.yaml")


def documents(path: Path) -> list[dict[str, Any]]:
    return [each for each in yaml.safe_load_all(path.read_text()) if each]


def of_kind(kind: str) -> dict[str, Any]:
    (found,) = (each for path in MANIFESTS for each in documents(path) if each["kind"] == kind)
    return found


OURS = [each for path in MANIFESTS for each in documents(path) if each["kind"] != "SparkApplication"]


@pytest.mark.parametrize("document", OURS, ids=lambda each: f"{each['kind']}-{each['metadata']['name']}")
def test_kubernetes_accepts_the_manifests(document: dict[str, Any]) -> None:
    kubernetes_validate.validate(document, "1.34", strict=True)


def test_the_schemas_find_a_mistake() -> None:
    wrong = {**of_kind("Deployment"), "spec": {**of_kind("Deployment")["spec"], "replica": 1}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, "1.34", strict=True)


def test_executors_find_the_driver() -> None:
    service, deployment = of_kind("Service"), of_kind("Deployment")
    pod = deployment["spec"]["template"]
    assert service["spec"]["selector"] == pod["metadata"]["labels"] == deployment["spec"]["selector"]["matchLabels"]
    container = pod["spec"]["containers"][0]
    settings = dict(each.removeprefix("--conf=").split("=", 1) for each in container["args"] if "--conf=" in each)
    ports = {each["name"]: each["port"] for each in service["spec"]["ports"]}
    assert {int(settings["spark.driver.port"]), int(settings["spark.driver.blockManager.port"])} == set(ports.values())
    assert ports == {each["name"]: each["containerPort"] for each in container["ports"]}
    place = service["metadata"]
    assert settings["spark.driver.host"] == f"{place['name']}.{place['namespace']}.svc"
    assert settings["spark.kubernetes.container.image"] == container["image"]
    assert settings["spark.kubernetes.namespace"] == place["namespace"]


def commands() -> Iterator[tuple[str, list[str]]]:
    """Return every use of the job in deploy/, with its arguments."""
    args = of_kind("Deployment")["spec"]["template"]["spec"]["containers"][0]["args"]
    yield "deployment", args[args.index("/opt/etl/orders.py") + 1 :]
    services = documents(COMPOSE)[0]["services"]
    command = services["orders"]["command"]
    yield "compose", command[command.index("/opt/etl/orders.py") + 1 :]
    yield "operator", of_kind("SparkApplication")["spec"]["arguments"]
    unit = (DEPLOY / "systemd" / "orders.service").read_text().replace("\\\n", " ")
    (start,) = (line for line in unit.splitlines() if line.startswith("ExecStart="))
    yield "systemd", start.partition("/opt/etl/orders.py")[2].split()


@pytest.mark.parametrize(("place", "arguments"), list(commands()))
def test_the_job_knows_its_arguments(place: str, arguments: list[str]) -> None:
    """The parser ends after an argument that it does not know, and before Spark starts."""
    assert "--table" in " ".join(arguments)
    job = [sys.executable, str(DEPLOY / "orders.py"), *arguments]
    done = subprocess.run([*job, "--help"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    done = subprocess.run([*job, "--no-such-argument"], capture_output=True, text=True, check=False)
    assert done.stderr.endswith("error: unrecognized arguments: --no-such-argument\n")


def test_systemd_accepts_the_service() -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("needs systemd-analyze")
    service = DEPLOY / "systemd" / "orders.service"
    done = subprocess.run(["systemd-analyze", "verify", str(service)], capture_output=True, text=True, check=False)
    said = [line for line in done.stderr.splitlines() if "orders.service" in line]
    assert said == ["orders.service: Command /opt/etl/bin/spark-submit is not executable: No such file or directory"], (
        done.stderr
    )


def module(name: str, folder: Path) -> Path:
    """Download a Go module and return its folder."""
    if shutil.which("go") is None:
        pytest.skip("needs Go")
    done = subprocess.run(["go", "mod", "download", "-json", name], cwd=folder, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout
    return Path(json.loads(done.stdout)["Dir"])


def closed(schema: Any) -> Any:
    """Return a schema that takes no field that it does not name: Kubernetes drops such fields silently."""
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: closed(each) for name, each in schema.items()}
    if isinstance(schema.get("properties"), dict) and not schema.get("x-kubernetes-preserve-unknown-fields"):
        found.setdefault("additionalProperties", False)
    return found


@pytest.mark.soak
def test_the_operator_accepts_the_application(tmp_path: Path) -> None:
    definition = documents(module(OPERATOR, tmp_path) / CRD)[0]
    schema = closed(definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"])
    spec = of_kind("SparkApplication")["spec"]
    Draft202012Validator(schema).validate(spec)
    assert not Draft202012Validator(schema).is_valid({**spec, "restartPolicies": {}})


@pytest.mark.soak
def test_compose_accepts_its_file(tmp_path: Path) -> None:
    schema = json.loads((module(COMPOSE_SCHEMA, tmp_path) / "schema" / "compose-spec.json").read_text())
    document = documents(COMPOSE)[0]
    Draft202012Validator(schema).validate(document)
    assert not Draft202012Validator(schema).is_valid({**document, "service": {}})


def test_the_services_wait_for_services_that_there_are() -> None:
    services = documents(COMPOSE)[0]["services"]
    for service in services.values():
        for needed, condition in service.get("depends_on", {}).items():
            assert needed in services
            assert condition["condition"] != "service_healthy" or "healthcheck" in services[needed]


def test_the_linter_of_dockerfiles_finds_nothing() -> None:
    linter = Path(sys.executable).with_name("hadolint")
    done = subprocess.run([linter, DOCKER / "Dockerfile"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


ENTRYPOINT = DOCKER / "entrypoint.sh"


def test_the_image_runs_commands() -> None:
    done = subprocess.run(["bash", ENTRYPOINT, "echo", "a b"], capture_output=True, text=True, check=False)
    assert done.stdout == "a b\n"


@pytest.mark.spark
def test_executors_on_kubernetes_get_what_they_want() -> None:
    """Started as Spark on Kubernetes starts it: it knows every option, and ends since there is no such driver."""
    environment = {
        **os.environ,
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@127.0.0.1:1",
        "SPARK_EXECUTOR_ID": "1",
        "SPARK_EXECUTOR_CORES": "1",
        "SPARK_EXECUTOR_MEMORY": "256m",
        "SPARK_APPLICATION_ID": "spark-1",
        "SPARK_EXECUTOR_POD_IP": "127.0.0.1",
        "SPARK_EXECUTOR_POD_NAME": "orders-exec-1",
        "SPARK_RESOURCE_PROFILE_ID": "0",
        "SPARK_JAVA_OPT_0": "-Dspark.rpc.numRetries=1",
    }
    done = subprocess.run(
        ["bash", ENTRYPOINT, "executor"], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    said = done.stdout + done.stderr
    assert "Unrecognized options" not in said
    assert "Failed to connect to /127.0.0.1:1" in said

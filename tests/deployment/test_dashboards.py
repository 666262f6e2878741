"""deploy/grafana and deploy/prometheus: every metric, label and value in them is one that is served."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.request import urlopen

import pytest
import yaml
from confluent_kafka import Consumer, Producer

from sparkonce import BatchCounts, EmbeddedBroker, LagListener, PartitionLag, SourceLag
from sparkonce.connectors.lag.state import Batch, LagState
from tests.cases import each_case
from tests.deployment.promql import Known, Series, read_text_format

PROJECT = Path(__file__).resolve().parents[2]
DASHBOARDS = sorted((PROJECT / "deploy" / "grafana").glob("*.json"))
RULES = PROJECT / "deploy" / "prometheus" / "sparkonce.rules.yml"
RULE_TESTS = RULES.with_name("sparkonce.rules.test.yml")
PAGE = (PROJECT / "docs" / "observability.md").read_text()
TIMEOUT_S = 30
COLUMNS = 24
"""Of Grafana's grid."""


def of_queries() -> str:
    state = LagState()
    source = SourceLag(0, "kafka", "d", 1, (PartitionLag("t", 0, 1, 2),), 1, 1, 1, 1)
    state.progressed(Batch("q", "r", "q", 0, 1, 1, (source,), BatchCounts(read_bytes=1)), 0)
    return LagListener(SimpleNamespace(streams=None), state, lambda: 0.0).metrics_text()  # type: ignore[arg-type]


def of_a_broker() -> str:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with EmbeddedBroker(config={"metrics.port": port}) as broker:
        settings = {"bootstrap.servers": broker.bootstrap_servers}
        producer = Producer(settings)
        producer.produce("t", b"v")
        assert producer.flush(TIMEOUT_S) == 0
        consumer = Consumer({**settings, "group.id": "g", "auto.offset.reset": "earliest"})
        consumer.subscribe(["t"])
        assert consumer.consume(1, TIMEOUT_S)
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=TIMEOUT_S) as answer:
            text = str(answer.read().decode())
        consumer.close()
    return text


@pytest.fixture(scope="module")
def known() -> Known:
    series: Series = {}
    for text in (of_queries(), of_a_broker()):
        for name, labels in read_text_format(text):
            series.setdefault(name, []).append(labels)
    fired = {"alertstate": "firing", "query": "q", "query_id": "q"}
    series["ALERTS"] = [{"alertname": rule["alert"], **fired} for rule in rules()]  # Prometheus' own
    return Known(series)


def dashboard(path: Path) -> Any:
    return json.loads(path.read_text())


def panels(path: Path) -> list[dict[str, Any]]:
    return [panel for panel in dashboard(path)["panels"] if panel["type"] != "row"]


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_a_dashboard_is_one_that_grafana_imports(path: Path) -> None:
    board = dashboard(path)
    assert re.fullmatch(r"[a-z0-9-]{1,40}", board["uid"])
    assert isinstance(board["title"], str)
    assert board["schemaVersion"] >= 39
    assert "id" not in board, "an id belongs to one Grafana; it is null or absent in what is imported"
    numbers = [panel["id"] for panel in board["panels"]]
    assert len(set(numbers)) == len(numbers)
    for panel in panels(path):
        assert panel["title"]
        assert panel["description"]
        assert [target["refId"] for target in panel["targets"]] == list("ABCDEF")[: len(panel["targets"])]
        assert all(target["datasource"]["uid"] == "${datasource}" for target in [panel, *panel["targets"]])
    assert board["templating"]["list"][0]["type"] == "datasource"


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_no_two_panels_overlap(path: Path) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in dashboard(path)["panels"]:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= COLUMNS
        own = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not own & taken, panel["title"]
        taken |= own


def test_every_dashboard_has_its_own_uid() -> None:
    assert len({dashboard(path)["uid"] for path in DASHBOARDS}) == len(DASHBOARDS) == 2


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_dashboards_ask_for_what_is_served(path: Path, known: Known) -> None:
    variables = [each for each in dashboard(path)["templating"]["list"] if each["type"] == "query"]
    for panel in panels(path):
        for target in panel["targets"]:
            text = target["expr"]
            for variable in variables:
                text = text.replace(f"${variable['name']}", variable["allValue"])
            assert "$" not in text
            labels = known.check(text)
            shown = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
            assert shown <= labels, f"{panel['title']}: the legend shows {shown - labels}"
    for variable in variables:
        (asked,) = re.findall(r"label_values\((\w+), (\w+)\)", variable["query"]["query"])
        assert asked[1] in known.labels_of(asked[0])


@each_case("rule", rules(), ids=lambda rule: rule["alert"])
def test_alerts_ask_for_what_is_served(rule: dict[str, Any], known: Known) -> None:
    labels = known.check(rule["expr"])
    assert rule["labels"]["severity"] in ("warning", "critical")
    for text in rule["annotations"].values():
        assert set(re.findall(r"\$labels\.(\w+)", text)) <= labels
    assert f"`{rule['alert']}`" in PAGE


def test_the_page_names_no_other_alert() -> None:
    section = PAGE.split("\n## Alerts\n")[1].split("\n## ")[0]
    named = re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)
    assert named == [rule["alert"] for rule in rules()]


def test_each_alert_has_a_case_in_which_it_fires() -> None:
    tests = yaml.safe_load(RULE_TESTS.read_text())["tests"]
    fired = {case["alertname"] for test in tests for case in test["alert_rule_test"] if case["exp_alerts"]}
    assert fired == {rule["alert"] for rule in rules()}


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed (Debian's package prometheus)")
def test_prometheus_fires_each_alert_when_it_should() -> None:
    done = subprocess.run(
        ["promtool", "test", "rules", RULE_TESTS.name], cwd=RULES.parent, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_checks_find_what_is_wrong(known: Known) -> None:
    for wrong, why in (
        ("sparkonce_rows", "no metric"),
        ('sum(sparkonce_rows_total{topic="t"})', "no label topic"),
        ("sum by (topic) (sparkonce_rows_total)", "no labels of what is aggregated"),
        ('kafka_log_Log_Value{name="Sizes"}', "no series"),
        ("sparkonce_rows_total and on (topic) sparkonce_partition_lag_records", "not labels of both"),
    ):
        with pytest.raises(AssertionError, match=why):
            known.check(wrong)

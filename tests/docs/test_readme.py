"""What the README and the first pages tell a newcomer to type works."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from deltalake import DeltaTable

from sparkonce import EmbeddedBroker
from sparkonce.jobs.cli.main import main
from sparkonce.kafka.client.client import Client, KafkaUnreachableError
from sparkonce.kafka.client.settings import read_settings
from tests.docs.typed_commands import Typed

PROJECT = Path(__file__).resolve().parents[2]
README = (PROJECT / "README.md").read_text()
FIRST = (PROJECT / "docs" / "first_pipeline.md").read_text()
INDEX = (PROJECT / "docs" / "README.md").read_text()
MAKEFILE = (PROJECT / "Makefile").read_text()
DEMO_CONFIG = PROJECT / "conf" / "demo.toml"
RECORDS = 1_000
TABLE = "/data/orders"
COMMANDS = [line.strip() for line in re.findall(r"^    ((?:seq .*)?sparkonce [^#\n]*)", FIRST, re.MULTILINE)]


def test_every_make_command_in_the_documents_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))
    documents = [PROJECT / "README.md", PROJECT / "CONTRIBUTING.md", *(PROJECT / "docs").rglob("*.md")]
    command = re.compile(r"(?:`|^ +(?:\$ )?)make ([a-z]+(?:-[a-z]+)*)\b", re.MULTILINE)
    named = {target for path in documents for target in command.findall(path.read_text())}
    assert {"demo", "test"} <= named
    assert named <= targets


def test_every_link_of_the_readme_leads_somewhere() -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", README)
    assert links
    assert [link for link in links if not (PROJECT / link).exists()] == []


def test_the_index_names_every_page_once() -> None:
    """The pages of internals/ are named by its own README."""
    docs = PROJECT / "docs"
    pages = {str(page.relative_to(docs)) for kind in ("*.md", "*.ipynb") for page in docs.rglob(kind)} - {"README.md"}
    inner = re.findall(r"^- \[[^\]]+\]\(([^)]+)\)", (docs / "internals" / "README.md").read_text(), re.MULTILINE)
    listed = [*re.findall(r"\]\(([^)]+)\)", INDEX), *(f"internals/{page}" for page in inner)]
    assert sorted(listed) == sorted(pages)


def test_the_guide_can_be_read() -> None:
    """In an evening: tables to look things up belong to the reference, what explains the code to the internals."""
    guide = INDEX.partition("\n## Guide\n")[2].partition("\n## ")[0]
    pages = re.findall(r"\]\(([^)]+\.md)\)", guide)
    assert 10 < len(pages) <= 40
    assert sum(len((PROJECT / "docs" / page).read_text().split()) for page in pages) <= 45_000


def test_no_link_text_is_the_name_of_a_file() -> None:
    pages = [PROJECT / "README.md", *(PROJECT / "docs").rglob("*.md")]
    assert [page.name for page in pages if re.search(r"\[[a-z_0-9/]+\.md\]\(", page.read_text())] == []


def test_the_program_is_that_of_the_first_result() -> None:
    """Which `tests/docs/test_tutorials.py` runs."""
    (lines,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert f"```python\n{lines}```" in (PROJECT / "docs" / "first_result.md").read_text()


def test_the_landing_page_shows_the_first_pipeline_and_the_figures_of_the_readme() -> None:
    landing = (PROJECT / "docs" / "index.md").read_text()
    (lines,) = re.findall(r"```python\n(.*?)```", landing, re.DOTALL)
    assert f"```python\n{lines}```" in FIRST
    figures = re.findall(r"^\| .* times \|$", landing, re.MULTILINE)
    assert len(figures) == 4
    assert all(figure in README for figure in figures)


def test_the_commands_without_a_table_are_tested_elsewhere() -> None:
    """In tests/unit (broker, doctor, warm) and tests/docs; with a broker: below."""
    words = [line.partition("sparkonce")[2].split()[0] for line in COMMANDS if TABLE not in line]
    assert words == ["broker", "send", "doctor", "warm", "transactions", "options"]


def test_the_error_on_the_first_page_is_what_the_client_says() -> None:
    (shown,) = re.findall(r"^sparkonce\..*\.KafkaUnreachableError: (.*)$", FIRST, re.MULTILINE)
    quick = {"kafka.socket.connection.setup.timeout.ms": "50"}
    with pytest.raises(KafkaUnreachableError) as error:
        Client(read_settings({"kafka.bootstrap.servers": "127.0.0.1:1", **quick})).topics(["orders"])
    assert str(error.value) == shown.replace("localhost:9092", "127.0.0.1:1").replace("10000", "50")


def committed_values(broker: EmbeddedBroker, topic: str) -> list[bytes]:
    settings = {
        "bootstrap.servers": broker.bootstrap_servers,
        "group.id": "reader",
        "isolation.level": "read_committed",
    }
    consumer = Consumer({**settings, "auto.offset.reset": "earliest", "enable.auto.commit": False})
    try:
        consumer.subscribe([topic])
        messages = consumer.consume(RECORDS, timeout=60)
        return [message.value() for message in messages if message.error() is None]
    finally:
        consumer.close()


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_the_first_pipeline_runs_and_the_commands_after_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Beside folders of the user's own that are named like parts of ours."""
    for name in ("broker_lite", "connectors", "exactly_once", "jobs", "offset_store", "registry_lite"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise RuntimeError('this is not sparkonce')")
    code = "".join(re.findall(r"```python\n(.*?)```", FIRST, re.DOTALL))
    with EmbeddedBroker() as broker:
        (producer,) = (line for line in COMMANDS if " send " in line)
        sent = Typed(producer, ("1,000 records in orders",))
        sent.check(sent.run(tmp_path, **{"localhost:9092": broker.bootstrap_servers}).stdout)
        text = code.replace("localhost:9092", broker.bootstrap_servers).replace("/data/", f"{tmp_path}/")
        (tmp_path / "orders.py").write_text(text)
        ended = subprocess.run([sys.executable, "orders.py"], cwd=tmp_path, capture_output=True, text=True)
        assert ended.returncode == 0, ended.stderr
        assert sorted(committed_values(broker, "shouted")) == sorted(str(number).encode() for number in range(RECORDS))
        (transactions,) = (line for line in COMMANDS if "transactions" in line)
        words = shlex.split(transactions.replace("localhost:9092", broker.bootstrap_servers))[1:]
        assert main(words) == 0, capsys.readouterr()
    orders = DeltaTable(tmp_path / "orders").to_pyarrow_table().column("order").to_pylist()
    assert sorted(orders) == sorted(str(number) for number in range(RECORDS))
    on_the_table = [line for line in COMMANDS if TABLE in line]
    assert len(on_the_table) == 4
    first, *others = (shlex.split(line.replace("/data/", f"{tmp_path}/"))[1:] for line in on_the_table)
    subprocess.run([sys.executable, "-m", "sparkonce", *first], cwd=tmp_path, check=True, capture_output=True)
    for words in others:
        assert main(words) == 0, capsys.readouterr()
    after = DeltaTable(tmp_path / "orders").to_pyarrow_table().column("order").to_pylist()
    assert sorted(after) == sorted(orders)


def demo(folder: Path, config: Path) -> str:
    command = [sys.executable, "-m", "sparkonce.jobs.demo", "--folder", str(folder), "--config", str(config)]
    ended = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.splitlines()[-1] == "RESULT expected=336776 rows=336776 lost=0 duplicated=0"
    assert ended.stdout.count("ended by SIGKILL under the") == 2
    return ended.stdout


def check(output: str, folder: Path, points: set[str]) -> None:
    assert set(re.findall(r"SIGKILL at ([a-z_.]+)", output)) == points
    assert (folder / "report.html").read_text().count('class="kill"') == len(points) + 2


@pytest.mark.lab
@pytest.mark.spark
@pytest.mark.timeout(1800)
def test_the_whole_demo_loses_nothing_and_doubles_nothing(tmp_path: Path) -> None:
    points = {"source.planned", "source.reading", "sink.file_written", "sink.before_commit", "sink.after_commit"}
    check(demo(tmp_path / "demo", DEMO_CONFIG), tmp_path / "demo", points)

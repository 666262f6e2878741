from __future__ import annotations

import json
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from sparkonce import EmbeddedBroker, EmbeddedRegistry
from sparkonce.jobs.cli.main import main
from sparkonce.jobs.ui.server import UiServer
from sparkonce.jobs.ui.site import Given, Site
from sparkonce.kafka.client.client import Client
from sparkonce.kafka.client.settings import read_settings
from tests.ui.looking import create_topic, produce


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "name what to show: --bootstrap-servers, --table, --checkpoint, or a folder"),
        (["nowhere"], "nowhere is not a folder"),
        (["--allow-faults"], "--allow-faults is for brokers that it starts itself: give --with-brokers, too"),
        (["--with-brokers", "1", "--bootstrap-servers", "a:1"], "both say which brokers to show: leave one out"),
        (["--bootstrap-servers", "nothing"], "'nothing' is not host:port"),
        (["--bootstrap-servers", "a:1", "--registry-option", "url=b", "--registry-option", "nothing=1"], "nothing"),
        (["--bootstrap-servers", "a:1", "--command-config", "nowhere"], "nowhere: there is no such file"),
        (["--table", "s3://key:hidden@bucket/table"], "--table s3://***@bucket/table: pages show this address"),
        (["--checkpoint", "az://c/x?sig=hidden"], "--checkpoint az://c/x?sig=***: pages show this address"),
    ],
)
def test_what_cannot_be_used_is_said(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ui", "--port", "0", *words]) == 2
    error = capsys.readouterr().err
    assert told in error
    assert "hidden" not in error


def test_an_empty_token_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "token").write_text("\n")
    assert main(["ui", "--token-file", str(tmp_path / "token"), str(tmp_path)]) == 2
    assert "is empty: write a token into it" in capsys.readouterr().err


def test_a_port_that_is_taken_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with closing(Site(Given())) as site, UiServer(site) as ui:
        port = ui.url.rstrip("/").rsplit(":", 1)[1]
        assert main(["ui", "--port", port, str(tmp_path)]) == 1
    assert f"cannot listen on 127.0.0.1:{port}" in capsys.readouterr().err


def test_it_ends_with_its_brokers(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    command = [sys.executable, "-m", "sparkonce.jobs.cli.main", "ui", "--with-brokers", "1", "--allow-faults"]
    with subprocess.Popen(
        [*command, "--port", "0", "--ready-file", str(ready)], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().strip()
            assert ready.read_text() == address
            assert ready.stat().st_mode & 0o777 == 0o600
            told = process.stdout.readline().strip()
            with urlopen(f"{address}brokers") as response:
                page = response.read().decode()
            assert "Kill broker 0" in page
            servers = page.partition(" at <code>")[2].partition("</code>")[0]
            assert told == f"brokers: {servers}"
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    options = {"kafka.bootstrap.servers": servers, "kafka.socket.connection.setup.timeout.ms": "100"}
    with closing(Client(read_settings(options))) as client, pytest.raises(ConnectionError):
        client.cluster()


def test_values_are_decoded_by_a_registry(kafka_broker: EmbeddedBroker) -> None:
    servers = kafka_broker.bootstrap_servers
    create_topic(servers, "counted")
    with EmbeddedRegistry(servers) as registry:
        schema = {"type": "record", "name": "C", "fields": [{"name": "n", "type": "int"}]}
        body = json.dumps({"schema": json.dumps(schema)}).encode()
        address = f"{registry.url}/subjects/counted-value/versions"
        with urlopen(Request(address, body, {"Content-Type": "application/json"})) as response:
            number = json.load(response)["id"]
        produce(servers, "counted", [b"\0" + number.to_bytes(4, "big") + b"\x0a"])
        given = Given({"kafka.bootstrap.servers": servers}, registry={"schemaRegistry.url": registry.url})
        with closing(Site(given)) as site, UiServer(site) as ui, urlopen(f"{ui.url}topics/counted/messages") as shown:
            assert "{&#34;n&#34;:5}" in shown.read().decode()

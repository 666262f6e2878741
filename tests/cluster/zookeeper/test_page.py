"""The page about clusters on ZooKeeper: its example runs, and its commands start brokers of one cluster."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

from confluent_kafka.admin import AdminClient

from lab.network import free_port
from tests.zookeeper import ZooKeeper

PAGE = (Path(__file__).resolve().parents[3] / "docs/internals/zookeeper.md").read_text()
ADDRESS = "127.0.0.1:2181"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def test_the_example_runs(zookeeper: ZooKeeper, tmp_path: Path) -> None:
    (code,) = blocks("python")
    assert ADDRESS in code
    command = [sys.executable, "-c", code.replace(ADDRESS, zookeeper.address)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert re.search(r" [123] \{1, 2, 3\}$", done.stdout), done.stdout


def test_the_commands_start_brokers_of_one_cluster(zookeeper: ZooKeeper, tmp_path: Path) -> None:
    commands = next(block for block in blocks("sh") if "zookeeper.connect" in block).splitlines()
    place = f"{zookeeper.address}/commands"
    with ExitStack() as stack:
        servers = []
        started = []
        for line in commands[:2]:
            words = shlex.split(line.replace(f"{ADDRESS}/sparkonce", place))
            assert words[:2] == ["sparkonce", "broker"]
            words[words.index("--port") + 1] = str(free_port())
            broker = subprocess.Popen(
                [sys.executable, "-m", "sparkonce.broker_lite", *words[2:]],
                cwd=tmp_path,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            stack.callback(broker.wait)
            stack.callback(broker.terminate)
            started.append(broker)
        for broker in started:
            assert broker.stdout is not None
            stack.callback(broker.stdout.close)
            servers.append(broker.stdout.readline().decode().strip())
        client = AdminClient({"bootstrap.servers": servers[0], "log_level": 0})
        assert sorted(client.list_topics(timeout=20).brokers) == [1, 2]

"""EmbeddedBroker, `python -m sparkonce.broker_lite` and `sparkonce broker`: start, stop, restart, what is refused."""

from __future__ import annotations

import argparse
import os
import re
import select
import signal
import socket
import struct
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from sparkonce import BrokerStartError, ConfigError, EmbeddedBroker
from sparkonce.broker_lite import __main__ as broker_main

BOTH = pytest.mark.parametrize("process", [False, True], ids=["thread", "process"])
DEADLINE_S = 30


def answers(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), DEADLINE_S) as sock:
            sock.sendall(bytes.fromhex("0000000a 0012 0000 00000007 ffff"))
            return sock.recv(100)[4:8] == b"\0\0\0\7"
    except ConnectionRefusedError:
        return False


@BOTH
def test_it_answers_and_removes_its_folder(process: bool) -> None:
    with EmbeddedBroker(process=process) as broker:
        assert answers(broker.bootstrap_servers)
        assert (broker.pid is not None) == process
        folder = broker.data_dir
        assert (folder / "meta.properties").exists()
    assert not folder.exists()
    assert not answers(broker.bootstrap_servers)
    broker.close()


@BOTH
def test_a_restart_keeps_the_address_and_the_data(process: bool, tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path, process=process) as broker:
        address, meta = broker.bootstrap_servers, (tmp_path / "meta.properties").read_bytes()
        broker.restart()
        assert broker.bootstrap_servers == address
        assert answers(address)
        assert (tmp_path / "meta.properties").read_bytes() == meta
    assert tmp_path.exists()


def test_a_killed_broker_comes_back() -> None:
    with EmbeddedBroker(process=True) as broker:
        before = broker.pid
        broker.kill()
        assert broker.pid is None
        assert not answers(broker.bootstrap_servers)
        broker.restart()
        assert broker.pid != before
        assert answers(broker.bootstrap_servers)


def test_a_thread_cannot_be_killed(kafka_broker: EmbeddedBroker) -> None:
    with pytest.raises(RuntimeError, match="process=True"):
        kafka_broker.kill()


LEFT_OPEN = """
import os
import sys
from sparkonce import EmbeddedBroker, EmbeddedCluster

opened = [kind(process=process) for kind in (EmbeddedBroker, EmbeddedCluster) for process in (False, True)]
fork = os.fork()
if not fork:
    sys.exit()
os.waitpid(fork, 0)
for each in opened:
    assert each.data_dir.parent.samefile(sys.argv[1]) and any(each.data_dir.iterdir()), each
"""


def test_what_is_never_closed_removes_its_folder_at_exit(tmp_path: Path) -> None:
    """And a fork that ends earlier does not."""
    command = [sys.executable, "-c", LEFT_OPEN, str(tmp_path)]
    ended = subprocess.run(
        command, env={**os.environ, "TMPDIR": str(tmp_path)}, capture_output=True, text=True, timeout=2 * DEADLINE_S
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert list(tmp_path.iterdir()) == []


KEPT_OPEN = """
import os
import sys
from pathlib import Path
from sparkonce import EmbeddedBroker, EmbeddedCluster

folder = Path(sys.argv[1])
opened = [EmbeddedBroker(folder / str(process), process=process) for process in (False, True)]
cluster = EmbeddedCluster(2, folder / "cluster", process=True)
cluster.pause(2)
fork = os.fork()
if not fork:
    sys.exit()
os.waitpid(fork, 0)
assert not list(folder.rglob(".kafka_cleanshutdown"))
"""


def test_what_is_never_closed_shuts_down_cleanly_at_exit(tmp_path: Path) -> None:
    """Also a broker of a cluster that is paused; and a fork that ends earlier does not."""
    command = [sys.executable, "-c", KEPT_OPEN, str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=2 * DEADLINE_S)
    assert (ended.returncode, ended.stderr) == (0, "")
    clean = sorted(str(path.parent.relative_to(tmp_path)) for path in tmp_path.rglob(".kafka_cleanshutdown"))
    assert clean == ["False", "True", "cluster/1", "cluster/2"]


def test_two_brokers_do_not_share_a_folder(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path):
        for process in (False, True):
            with pytest.raises(BrokerStartError, match="in use by another broker"):
                EmbeddedBroker(tmp_path, process=process)


def test_an_address_of_another_machine_is_refused_as_such() -> None:
    with pytest.raises(
        BrokerStartError, match=r"cannot listen on 192\.0\.2\.1:0 .*: choose an address of this machine"
    ):
        EmbeddedBroker(config={"listeners": "PLAINTEXT://192.0.2.1:0"})


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
def test_the_log_names_the_address_that_is_bound_and_what_clients_are_told(
    host: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "sparkonce.broker_lite")
    settings = {"listeners": f"PLAINTEXT://{host}:0", "advertised.listeners": "PLAINTEXT://kafka.example:29192"}
    with EmbeddedBroker(tmp_path, config=settings):
        pass
    line = next(each for each in caplog.messages if each.startswith("listening on "))
    assert re.fullmatch(
        rf"listening on PLAINTEXT://{re.escape(host)}:\d+; advertised to clients as kafka.example:29192", line
    )


def test_a_broker_that_is_down_cannot_be_killed_again(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path, process=True) as broker:
        broker.kill()
        with pytest.raises(RuntimeError, match=r"is not running.*restart"):
            broker.kill()


def test_a_port_in_use_is_named(kafka_broker: EmbeddedBroker) -> None:
    port = kafka_broker.bootstrap_servers.rpartition(":")[2]
    with pytest.raises(BrokerStartError, match=rf"cannot listen on 127.0.0.1:{port}.*choose another port"):
        EmbeddedBroker(config={"port": port})


@BOTH
@pytest.mark.parametrize("own", [True, False], ids=["own port", "foreign port"])
def test_a_metrics_port_in_use_is_named_and_the_directory_let_go(process: bool, own: bool, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        if own:
            taken.close()
        config = {"port": port if own else 0, "metrics.port": port}
        with pytest.raises(
            BrokerStartError, match=rf"metrics\.port.*{port}|{port}.*metrics\.port.*: choose another port"
        ):
            EmbeddedBroker(tmp_path, process=process, config=config)
    with EmbeddedBroker(tmp_path, process=process) as broker:
        assert answers(broker.bootstrap_servers)


@BOTH
@pytest.mark.parametrize("place", ["file", "file/below", "unreadable"])
def test_a_directory_that_cannot_be_used_is_named(process: bool, place: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "unreadable" / "dynamic-settings.json").mkdir(parents=True)  # whoever runs this, that is no file
    with pytest.raises(BrokerStartError, match=rf"{tmp_path / place} cannot be used \(.*\): choose another") as raised:
        EmbeddedBroker(tmp_path / place, process=process)
    assert "Traceback" not in str(raised.value)


@BOTH
def test_the_setting_log_dirs_names_the_directory(process: bool, tmp_path: Path) -> None:
    config = {"log.dirs": str(tmp_path / "data")}
    for data_dir in (None, tmp_path / "data"):
        with EmbeddedBroker(data_dir, process=process, config=config) as broker:
            assert broker.data_dir == tmp_path / "data"
        assert (tmp_path / "data" / "meta.properties").exists()


@BOTH
def test_the_argument_beats_the_setting(process: bool, tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path / "other", process=process, config={"log.dirs": str(tmp_path / "data")}) as broker:
        assert broker.data_dir == tmp_path / "other"
    assert [each.name for each in tmp_path.iterdir()] == ["other"]


def test_an_unknown_setting_is_refused_before_anything_starts() -> None:
    with pytest.raises(ConfigError, match=r"nearest known one is 'num\.partitions'"):
        EmbeddedBroker(config={"num.partition": 3})


def start(*arguments: str, cwd: Path) -> subprocess.Popen[str]:
    """Start a broker by a command; its first line of output is its address."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[3])}
    return subprocess.Popen(
        [sys.executable, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=cwd,
        env=environment,
        preexec_fn=_hear_signals,
    )


def _hear_signals() -> None:
    """Hear what the tests' own parent may have set to be ignored, as nohup and a shell's `&` do."""
    for number in (signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)


@pytest.mark.parametrize(
    "command", [("-m", "sparkonce.broker_lite"), ("-m", "sparkonce.jobs.cli.main", "broker")], ids=["module", "command"]
)
def test_the_command_line(command: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "broker.properties").write_text("num.partitions=2\nport=1\n")
    options = ("--config", "broker.properties", "--data-dir", "data", "--port", "0", "--ready-file", "ready")
    child = start(*command, *options, cwd=tmp_path)
    assert child.stdout is not None
    address = child.stdout.readline().strip()
    assert (tmp_path / "ready").read_text() == address
    assert answers(address)
    child.send_signal(signal.SIGTERM)
    assert "stopped cleanly" in child.communicate(timeout=DEADLINE_S)[1]
    assert child.returncode == 0
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()
    assert not (tmp_path / "ready").exists()


def test_a_start_that_fails_leaves_no_address_of_a_former_one(tmp_path: Path) -> None:
    (tmp_path / "ready").write_text("localhost:1")
    options = ("--ready-file", "ready", "--set", "prot=9")
    start("-m", "sparkonce.broker_lite", *options, cwd=tmp_path).communicate(timeout=DEADLINE_S)
    assert not (tmp_path / "ready").exists()


def test_a_hang_up_stops_it_in_order(tmp_path: Path) -> None:
    child = start("-m", "sparkonce.broker_lite", "--data-dir", "data", cwd=tmp_path)
    assert child.stdout is not None
    assert child.stdout.readline()
    child.send_signal(signal.SIGHUP)
    assert "stopped cleanly" in child.communicate(timeout=DEADLINE_S)[1]
    assert child.returncode == 0


def test_a_hang_up_that_nohup_has_ignored_stays_ignored(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sparkonce.broker_lite", "--data-dir", "data"]
    nohup = (
        f"import os, signal; signal.signal(signal.SIGHUP, signal.SIG_IGN); os.execv({sys.executable!r}, {command!r})"
    )
    child = start("-c", nohup, cwd=tmp_path)
    assert child.stdout is not None
    assert child.stdout.readline()
    ignored = re.search(r"^SigIgn:\s*([0-9a-f]+)$", Path(f"/proc/{child.pid}/status").read_text(), re.MULTILINE)
    assert ignored is not None
    assert int(ignored[1], 16) & 1 << signal.SIGHUP - 1
    child.terminate()
    child.communicate(timeout=DEADLINE_S)
    assert child.returncode == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_broker_that_waits_for_zookeeper_says_so_and_obeys_signals(number: int, tmp_path: Path) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # and does not listen
        place = f"127.0.0.1:{nobody.getsockname()[1]}/x"
        timeout_ms = 2 * DEADLINE_S * 1000
        settings = (f"zookeeper.connect={place}", f"zookeeper.session.timeout.ms={timeout_ms:.0f}", "node.id=1")
        child = start("-m", "sparkonce.broker_lite", *(f"--set={each}" for each in settings), cwd=tmp_path)
        assert child.stderr is not None
        assert f"waits for ZooKeeper at {place}, for up to {timeout_ms / 1000:.0f} s" in child.stderr.readline()
        child.send_signal(number)
        said = child.communicate(timeout=DEADLINE_S)[1]
    assert "stopped before it had started" in said
    assert "Traceback" not in said
    assert child.returncode == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--data-dir", "file"), r"file cannot be used \(it is a file\): choose another data directory"),
        (("--data-dir", ""), r"--data-dir is empty: give a directory"),
        (("--ready-file", "nowhere/ready"), r"--ready-file nowhere/ready cannot be written: .*No such file"),
    ],
)
def test_a_place_that_cannot_be_used(options: tuple[str, str], message: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    child = start("-m", "sparkonce.broker_lite", "--port", "0", *options, cwd=tmp_path)
    said = child.communicate(timeout=DEADLINE_S)[1]
    assert re.search(rf"^sparkonce broker: .*{message}", said, re.MULTILINE)
    assert "Traceback" not in said
    assert child.returncode == 1


def test_a_wrong_setting_on_the_command_line(tmp_path: Path) -> None:
    said = start("-m", "sparkonce.broker_lite", "--set", "prot=9", cwd=tmp_path).communicate(timeout=DEADLINE_S)[1]
    assert re.search(r"unknown broker setting 'prot'; the nearest known one is 'port'", said)


@pytest.mark.parametrize("line", ["num.partitions=many", "broker.id=1", "log.dirs=a,b", "listeners=x"])
def test_a_wrong_setting_in_a_file_names_the_file_and_the_line(line: str, tmp_path: Path) -> None:
    file = tmp_path / "broker.properties"
    file.write_text(f"num.partitions=2\n{line}\n")
    parser = argparse.ArgumentParser()
    broker_main.add_arguments(parser)
    with pytest.raises(ConfigError, match=rf"^{file}, line 2: .*{line.partition('=')[0]}"):
        broker_main._config(parser.parse_args(["--config", str(file)]))


def test_settings_of_a_file_that_contradict_each_other_are_told_without_a_line(tmp_path: Path) -> None:
    file = tmp_path / "broker.properties"
    file.write_text("broker.heartbeat.interval.ms=4000\nbroker.session.timeout.ms=7000\n")
    parser = argparse.ArgumentParser()
    broker_main.add_arguments(parser)
    with pytest.raises(ConfigError, match=rf"^{file}: broker\.heartbeat"):
        broker_main._config(parser.parse_args(["--config", str(file)]))


def test_the_command_line_can_put_a_file_right_and_wrong(tmp_path: Path) -> None:
    file = tmp_path / "broker.properties"
    file.write_text("group.min.session.timeout.ms=9\ngroup.max.session.timeout.ms=8\nlog.dirs=a,b\n")
    parser = argparse.ArgumentParser()
    broker_main.add_arguments(parser)
    options = ["--config", str(file), "--data-dir", "c", "--set", "group.max.session.timeout.ms=10"]
    assert broker_main._config(parser.parse_args(options)).log_dirs == "c"
    with pytest.raises(ConfigError, match=r"^port='x': "):
        broker_main._config(parser.parse_args([*options, "--set", "port=x"]))


def test_a_broker_process_ends_with_its_parent(tmp_path: Path) -> None:
    code = (
        "import os, signal, tempfile; from sparkonce import EmbeddedBroker\n"
        "tempfile.tempdir = os.getcwd()\n"
        "named, temporary = EmbeddedBroker('data', process=True), EmbeddedBroker(process=True)\n"
        "print(named.pid, temporary.pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    parent = start("-c", code, cwd=tmp_path)
    assert parent.stdout is not None
    pids = map(int, parent.stdout.readline().split())
    for pid in pids:
        with suppress(ProcessLookupError):  # it has ended already
            process = os.pidfd_open(pid)
            try:
                assert select.select([process], [], [], DEADLINE_S)[0], "the broker outlives its parent"
            finally:
                os.close(process)
    parent.communicate(timeout=DEADLINE_S)
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()
    assert list(tmp_path.iterdir()) == [tmp_path / "data"], "the temporary folder of the other is left"


def connect_from(port: int, server: socket.socket) -> None:
    """Connect from this port, and leave nothing of it behind."""
    with socket.create_connection(server.getsockname(), DEADLINE_S, source_address=("127.0.0.1", port)) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


@BOTH
def test_nobody_else_gets_its_port_while_it_is_down(process: bool) -> None:
    """A client's outgoing connection could: its near end would be what the broker cannot listen on any more."""
    listeners = {
        "listeners": "A://127.0.0.1:0,B://127.0.0.1:0",
        "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT",
    }
    with EmbeddedBroker(process=process, config=listeners) as broker, socket.create_server(("127.0.0.1", 0)) as other:
        before = broker.listeners
        broker.stop()
        for address in before.values():
            with pytest.raises(OSError, match="in use"):
                connect_from(int(address.rpartition(":")[2]), other)
            assert not answers(address)
        broker.restart()
        assert broker.listeners == before
        assert all(map(answers, before.values()))


def test_a_port_is_let_go_of_by_who_is_closed_and_by_who_could_not_start(tmp_path: Path) -> None:
    with EmbeddedBroker() as broker, socket.create_server(("127.0.0.1", 0)) as other:
        port = int(broker.bootstrap_servers.rpartition(":")[2])
        broker.close()
        connect_from(port, other)
        (tmp_path / "file").touch()
        with pytest.raises(BrokerStartError, match="cannot be used"):
            EmbeddedBroker(tmp_path / "file", config={"port": port})
        connect_from(port, other)
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(BrokerStartError, match="choose another port"):
        EmbeddedBroker(config={"port": taken.getsockname()[1]})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"data_dir": {"num.partitions": 4}}, r"data_dir=\{'num.partitions': 4\}: expected a path; .* config=\{"),
        ({"config": ["num.partitions=4"]}, r"config=\['num.partitions=4'\]: expected settings by their names"),
    ],
)
def test_arguments_that_are_mixed_up_are_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        EmbeddedBroker(**arguments)

"""Flights from Kafka to Delta while everything is killed again and again; then the table is compared with the source.

The last line is ``RESULT expected=… rows=… lost=… duplicated=…``; the exit code is 0 only if nothing is lost, nothing
is there twice and every column is equal.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import webbrowser
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from deltalake import DeltaTable
from rich.console import Console

from lab.flights_check import Verdict, judge
from lab.job_process import JobFailedError
from sparkonce.broker_lite.config import read_properties
from sparkonce.broker_lite.embedded import EmbeddedBroker
from sparkonce.jobs.demo.report import as_json, page
from sparkonce.jobs.demo.settings import DEFAULT_CONFIG, Folder, Settings, SettingsError
from sparkonce.jobs.demo.show import Demo
from sparkonce.jobs.etl import dataset

OWNER = ".sparkonce-demo"


def main() -> int:
    """Run the demo; return the exit code."""
    arguments = _arguments()
    console = Console(highlight=False)
    with ExitStack() as stack:
        try:
            settings = replace(Settings.read(arguments.config), direct=arguments.direct)
            folder = _fresh(arguments.folder)
            # Any free port: the one in the file may be in use by another broker.
            config = read_properties(settings.broker_properties) | {"port": "0"}
            broker = stack.enter_context(EmbeddedBroker(folder.broker, process=True, config=config))
            demo = Demo(settings, folder, console, broker)
            demo.timeline.folder = folder.root
            if arguments.watch:
                _watch(demo, stack)
            demo.run()
            console.print("Comparing the table with the source data, without Spark")
            verdict = judge(folder.table, expected=dataset.flights() if settings.direct else None)
        except (SettingsError, JobFailedError) as error:
            console.print(f"[red]{type(error).__name__}[/red]: {error}", markup=True, soft_wrap=True)
            return 2
        demo.doing = verdict.result
        result = verdict.result
        events = [*demo.timeline.events, *demo.timeline.commits(DeltaTable(folder.table))]
        folder.report.write_text(page(verdict, events, result))
        folder.report.with_name("events.json").write_text(as_json(events, result))
        _print(console, verdict)
        console.print(f"The timeline of kills and commits: {folder.report}", soft_wrap=True)
        print(result, flush=True)
        if arguments.watch and console.is_terminal and sys.stdin.isatty():
            input("Enter ends the pages and the broker. ")
        return 0 if verdict.good else 1


def _watch(demo: Demo, stack: ExitStack) -> None:
    """Serve live pages about the demo until the stack is unwound."""
    from sparkonce.jobs.demo.watching import served  # its packages are in another extra

    url = stack.enter_context(served(demo))
    demo.console.print(f"Watch it: {url}", soft_wrap=True)
    if demo.console.is_terminal and (sys.platform == "darwin" or {"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys()):
        webbrowser.open(url)


def _print(console: Console, verdict: Verdict) -> None:
    console.print(f"{'column':<20} {'source data':<17} {'table':<17}")
    for column in verdict.columns:
        state = "equal" if column.equal else "[red]DIFFERENT[/red]"
        console.print(f"{column.name:<20} {column.source:<17} {column.table:<17} {state}")


def _fresh(root: Path) -> Folder:
    """Empty the demo's folder, if it is one."""
    if root.exists() and any(root.iterdir()) and not (root / OWNER).exists():
        raise SettingsError(f"{root} is not empty and was not made by the demo; name another with --folder")
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    (root / OWNER).touch()
    folder = Folder(root.resolve())
    folder.logs.mkdir()
    return folder


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m sparkonce.jobs.demo", description=__doc__)
    parser.add_argument("--config", type=Path, default=DEFAULT_CONFIG, help="default: conf/demo.toml")
    parser.add_argument(
        "--direct", action="store_true", help="records go from topic to table within the sink's tasks, and join nothing"
    )
    parser.add_argument("--watch", action="store_true", help="serve live pages about it, and print their address")
    parser.add_argument("--folder", type=Path, default=Path(".demo"), help="default: .demo; emptied at the start")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())

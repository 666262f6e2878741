"""The demo's configuration, read from ``conf/demo.toml``."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

from lab.crash_plans import point_named
from sparkonce.crash_points import CrashPoint
from sparkonce.jobs.shared.arguments import CONF

DEFAULT_CONFIG = CONF / "demo.toml"


class SettingsError(ValueError):
    """A configuration that is invalid; the message names the file and the entry."""


@dataclass(frozen=True, slots=True)
class Kill:
    """One run of the job that ends with SIGKILL at ``point`` (of micro-batch ``batch``, if given)."""

    point: CrashPoint
    batch: int | None = None
    delete_checkpoint: bool = False

    def __str__(self) -> str:
        return self.point.value if self.batch is None else f"{self.point.value}@{self.batch}"


@dataclass(frozen=True, slots=True)
class Settings:
    """The entries of the file, by their names; see the comments there."""

    broker_properties: Path
    topic: str
    partitions: int
    kill_broker_at: float
    app_id: str
    partition_by: str
    max_offsets_per_trigger: int
    master: str
    driver_memory: str
    time_limit: float
    kills: tuple[Kill, ...]
    kill_broker_after_commits: int
    direct: bool = False
    """Whether the sink reads the records; from the command line."""

    @classmethod
    def read(cls, path: Path) -> Settings:
        """Read the file.

        Raises:
            SettingsError: if it is missing, is not TOML, or lacks an entry.
        """
        try:
            document = tomllib.loads(path.read_text())
            publish, job = document["publish"], document["job"]
            return cls(
                broker_properties=path.parent / document["broker"]["properties"],
                topic=publish["topic"],
                partitions=int(publish["partitions"]),
                kill_broker_at=float(publish["kill_broker_at"]),
                app_id=job["app_id"],
                partition_by=job["partition_by"],
                max_offsets_per_trigger=int(job["max_offsets_per_trigger"]),
                master=job["master"],
                driver_memory=job["driver_memory"],
                time_limit=float(job["time_limit"]),
                kills=tuple(
                    Kill(point_named(each["point"]), each.get("batch"), each.get("delete_checkpoint", False))
                    for each in document["kill"]
                ),
                kill_broker_after_commits=int(document["finish"]["kill_broker_after_commits"]),
            )
        except OSError as error:
            raise SettingsError(f"cannot read the demo's configuration {path}: {error.strerror}") from error
        except KeyError as error:
            raise SettingsError(f"{path}: entry {error} is missing") from error
        except (ValueError, TypeError) as error:
            raise SettingsError(f"{path}: {error}") from error


@dataclass(frozen=True, slots=True)
class Folder:
    """The folder of one run of the demo."""

    root: Path

    @property
    def broker(self) -> Path:
        """The broker's data."""
        return self.root / "broker"

    @property
    def table(self) -> Path:
        """The Delta table."""
        return self.root / "table"

    @property
    def checkpoint(self) -> Path:
        """Spark's checkpoint."""
        return self.root / "checkpoint"

    @property
    def logs(self) -> Path:
        """The output of each run of the job, and the marks of the kill points."""
        return self.root / "logs"

    @property
    def report(self) -> Path:
        """The page with the timeline."""
        return self.root / "report.html"

"""The files that a cluster leaves, held to the invariants of the simulator."""

from __future__ import annotations

from pathlib import Path

from sparkonce.jobs.cli.cluster_check import Report, check_cluster


def arguments_of(folder: Path) -> list[str]:
    """Return the directories of an `EmbeddedCluster`: the controller's log, then each broker's."""
    brokers = sorted((each for each in folder.iterdir() if each.name.isdecimal()), key=lambda each: int(each.name))
    return [str(folder / "metadata"), *map(str, brokers)]


def check_files(folder: Path, place: str | None = None) -> Report:
    """Fail if the replicas of an `EmbeddedCluster` that is closed do not agree; `place` is its `coordination`."""
    metadata_dir, *data_dirs = arguments_of(folder)
    report = check_cluster(place or metadata_dir, data_dirs)
    assert report.violations == []
    assert report.batches > 0
    return report

"""Faults of a cluster whose Master does not answer: silence is no proof that something has happened."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from lab.verify.cluster import faults
from lab.verify.cluster.cells import Fault, all_faults
from lab.verify.cluster.faults import FaultError, Scene, executors_given_back, master_restarted


def scene(fault: Fault, applications: Mapping[str, int], *, in_a_task: bool) -> tuple[Scene, list[str]]:
    happened: list[str] = []
    cell = next(cell for cell in all_faults() if cell.fault is fault and cell.in_a_task is in_a_task)
    master = SimpleNamespace(kill=lambda: happened.append("the Master is killed"))
    cluster: Any = SimpleNamespace(applications=lambda: applications, master=master)
    session: Any = None
    return Scene(cell, cluster, session, (), 0, lambda: None, lambda _lane, what: happened.append(what)), happened


@pytest.mark.parametrize("in_a_task", [True, False])
@pytest.mark.parametrize(("applications", "shown"), [({}, False), ({"app-1": 1}, False), ({"app-1": 0}, True)])
def test_executors_are_given_back_when_the_master_says_so(
    applications: Mapping[str, int], shown: bool, in_a_task: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(faults, "LIMIT_S", 0.0)
    stage, happened = scene(Fault.EXECUTORS_GIVEN_BACK, applications, in_a_task=in_a_task)
    if shown:
        list(executors_given_back(stage))
    else:
        with pytest.raises(FaultError, match="all executors are given back"):
            list(executors_given_back(stage))
    assert happened == ["all executors are given back"] * shown


def test_a_master_without_an_application_has_none_to_recover() -> None:
    stage, happened = scene(Fault.MASTER_RESTARTED, {}, in_a_task=False)
    with pytest.raises(FaultError, match="names no application"):
        list(master_restarted(stage))
    assert not happened

"""Brokers of another version beside those of this one: here the same sources, loaded a second time."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from lab.sim.__main__ import main
from lab.sim.campaign import run_one, run_seeds
from lab.sim.former import FormerVersionError, former_version
from lab.sim.marks import Mark
from lab.sim.plan import Coordination, plan_of
from lab.sim.steps import Kind
from lab.sim.upgrade_plan import STANDALONE_BROKER
from sparkonce.broker_lite.server.server import Server
from sparkonce.kafka.protocol import errors

HERE = str(Path(__file__).resolve().parents[3])
SEEDS = (2, 8, 10)
ALL_ARE_FORMER = 2


def of_former(module: str) -> ModuleType:
    return import_module(former_version(HERE).process.__module__.replace("sim.machine.process", module))


def test_a_former_version_has_classes_of_its_own() -> None:
    assert former_version(HERE) is former_version(HERE), "it is loaded once"
    assert of_former("broker_lite.server.server").Server is not Server
    assert issubclass(of_former("sim.machine.process").WatchedServer, of_former("broker_lite.server.server").Server)
    assert of_former("broker_lite.replication.leader").KafkaError is errors.KafkaError


def test_plans_differ_in_upgrades_only() -> None:
    """So a seed that fails beside a former version can be looked at without it."""
    for seed in range(40):
        alone, plan = plan_of(seed), plan_of(seed, beside=HERE)
        assert plan.former is not None
        assert tuple(step for step in plan.steps if step.kind not in (Kind.UPGRADE, Kind.DOWNGRADE)) == alone.steps
        upgraded = [step.target for step in plan.steps if step.kind is Kind.UPGRADE]
        assert set(upgraded) <= {*plan.former.brokers, STANDALONE_BROKER}
        assert len(upgraded) == len(set(upgraded))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("coordination", Coordination)
def test_clusters_are_upgraded_and_nothing_is_violated(coordination: Coordination) -> None:
    tally = run_seeds(SEEDS, coordination, HERE)
    assert not tally.violations, "again: python -m lab.sim --seed N --beside ."
    assert tally.marks[Mark.UPGRADED] > len(SEEDS)
    assert tally.marks[Mark.DOWNGRADED]


@pytest.mark.timeout(300)
def test_judges_look_into_brokers_of_the_former_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug of the former version alone is found, as it would be one of what they do together."""
    monkeypatch.setattr(of_former("broker_lite.replication.leader").PartitionLeader, "is_acknowledged", lambda *_: True)
    plan = plan_of(ALL_ARE_FORMER, beside=HERE)
    assert plan.former is not None
    assert len(plan.former.brokers) == plan.brokers
    assert run_one(plan, None).invariant == "acknowledged-is-safe"
    assert run_one(plan_of(ALL_ARE_FORMER), None).invariant is None


def test_the_same_seed_is_the_same_run() -> None:
    plan = plan_of(1, beside=HERE)
    first, again = run_one(plan, None), run_one(plan, None)
    assert any(line.endswith("starts, of the former version") for line in first.trace)
    assert first.digest == again.digest


def test_what_is_no_checkout_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(FormerVersionError, match="no checkout"):
        former_version(str(tmp_path))
    (tmp_path / "broker_lite").mkdir()
    assert main(["--seed", "1", "--beside", str(tmp_path)]) == 2
    assert "do not run in this simulator: No module named" in capsys.readouterr().err
    assert main(["--seeds", "1", "--planted", "--beside", HERE]) == 2
    assert "--beside goes with none of" in capsys.readouterr().err

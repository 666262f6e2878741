"""Many seeds on whole brokers: see `sim/campaign.py`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from sparkonce.broker_lite.sim import campaign
from sparkonce.broker_lite.sim.whole.planted import PLANTED
from sparkonce.broker_lite.sim.whole.world import run_plan

WHOLE: Final = campaign.Simulator(run_plan, PLANTED)


def run_seeds(seeds: Iterable[int]) -> campaign.Tally:
    """Run seeds as they are; a function of a module, so that other processes find it."""
    return campaign.run_seeds(seeds, WHOLE)

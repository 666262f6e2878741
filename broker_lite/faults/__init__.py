"""Fault injection: the rules, and where they take effect."""

from __future__ import annotations

from sparkonce.broker_lite.faults.faults import FaultHandle, FaultNeverFiredError, Faults

__all__ = ["FaultHandle", "FaultNeverFiredError", "Faults"]

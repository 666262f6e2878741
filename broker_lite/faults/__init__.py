"""Faults on command: what a broker can be told to do wrong, and where it happens."""

from __future__ import annotations

from sparkonce.broker_lite.faults.faults import FaultHandle, FaultNeverFiredError, Faults

__all__ = ["FaultHandle", "FaultNeverFiredError", "Faults"]

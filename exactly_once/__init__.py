"""Atomic commit, comparison, recovery and crash points."""

"""Bugs put back on purpose: a simulator that does not find them is of no use."""

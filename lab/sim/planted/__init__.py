"""Planted bugs: a simulator that does not find them is of no use."""

"""Faults, and which of them a seed allows."""

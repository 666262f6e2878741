"""Simulated clients: they speak the protocol in bytes."""

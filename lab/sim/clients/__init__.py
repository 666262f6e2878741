"""Simulated clients, which speak the protocol in bytes."""

"""Clients that report in JSON what they send and read."""

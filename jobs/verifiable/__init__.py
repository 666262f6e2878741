"""Clients that tell in JSON what they have sent and read."""

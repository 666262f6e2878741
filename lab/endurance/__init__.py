"""Flights into a table on a cluster and an object store, under repeated kills."""

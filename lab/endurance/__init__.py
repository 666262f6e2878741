"""Flights into a table on a cluster and an object store, while what runs there is killed in turn."""

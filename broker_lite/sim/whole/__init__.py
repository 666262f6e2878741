"""Simulations of whole brokers: the production code, from its sockets to its files, on simulated machines."""

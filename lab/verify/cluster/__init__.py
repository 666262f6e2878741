"""Faults that only a cluster has: of executors, Workers, Master and network, and a driver moved to another machine."""

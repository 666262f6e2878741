"""Simulated parts of a machine: event loop, sockets, disks, and the lives of processes."""

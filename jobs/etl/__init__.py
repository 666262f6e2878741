"""Example jobs, and the records that they work on."""

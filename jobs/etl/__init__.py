"""Example jobs, and their records."""

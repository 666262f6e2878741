"""A Delta table's log: its files, the state that they add up to, and commits (PROTOCOL.md of delta-io/delta)."""

"""The invariants, and the true state that they are checked against."""

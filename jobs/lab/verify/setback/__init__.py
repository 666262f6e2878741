"""Checkpoints set back: the second dimension of ``sparkonce verify``."""

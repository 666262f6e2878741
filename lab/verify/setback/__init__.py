"""Checkpoints set back: the second dimension of ``python -m lab.verify``."""

"""A cluster in one process, on a simulated clock, network and disk: what can go wrong does, from a seed, repeatably."""

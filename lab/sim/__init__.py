"""A cluster in one process on a simulated clock, network and disk; a seed determines every fault, so runs repeat."""

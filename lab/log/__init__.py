"""The simulated store: several writers of one Delta log in memory, with faults, and a judge of every file."""

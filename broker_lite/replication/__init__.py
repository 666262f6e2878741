"""Several replicas of one log: who is in sync, how far records are safe, and what a follower must cut off."""

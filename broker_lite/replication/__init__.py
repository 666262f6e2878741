"""Replicas of one log: in-sync replicas, the high watermark, and truncation of followers."""

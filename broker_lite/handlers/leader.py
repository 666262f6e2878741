"""What is said of leadership: this broker leads every partition of its topics, from the first day on."""

from __future__ import annotations

LEADER_EPOCH = 0
"""The epoch of its leadership; it never changes, as there is nobody to elect."""

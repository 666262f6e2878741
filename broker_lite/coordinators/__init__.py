"""Group and producer state machines, pure."""

"""Shared parts of the commands `offsets`, `compact` and `clean`, and their work."""

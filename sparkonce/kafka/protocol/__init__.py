"""Bytes to messages and back."""

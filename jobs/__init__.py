"""Runnable jobs and the command line."""

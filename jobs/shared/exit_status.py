"""How the commands end."""

import signal

GOOD, FAILED, USAGE = 0, 1, 2
"""Success; failure; an invalid command line."""
INTERRUPTED = 128 + signal.SIGINT
"""Ended by Ctrl-C, as a shell reports it."""

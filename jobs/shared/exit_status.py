"""How the commands end."""

GOOD, FAILED, USAGE = 0, 1, 2
"""Success; failure; an invalid command line."""

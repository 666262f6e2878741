"""How the commands end."""

GOOD, FAILED, USAGE = 0, 1, 2
"""All is well and done; something is wrong or could not be done; the command line cannot be used."""

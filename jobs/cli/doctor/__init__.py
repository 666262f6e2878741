"""`sparkonce doctor`: check what a query needs, and name the remedy of what is missing."""

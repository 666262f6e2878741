"""`sparkonce doctor`: look whether all that a query needs is there, and say what to do where it is not."""

"""Topics into tables by settings alone: which query each table needs, and what keeps them running."""

"""Topics into tables by settings alone: each table's query, and the thread that keeps queries running."""

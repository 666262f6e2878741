"""The command `sparkonce story`: how replicated logs lose records or part, and what keeps them from it."""

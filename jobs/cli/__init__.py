"""The command `sparkonce`, and what it does with tables, offsets, transactions and options."""

"""The command `sparkonce` and its subcommands for tables, offsets, transactions and options."""

"""The command `sparkonce ui`: live pages about brokers, topics, queries and tables (docs/ui.md)."""

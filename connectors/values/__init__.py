"""The columns of records, and values decoded into typed columns (JSON)."""

"""Topics copied as they are: record batches that are moved whole, or whose records are packed into new ones."""

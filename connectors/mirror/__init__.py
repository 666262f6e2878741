"""Topics copied unchanged: record batches are copied whole, or their records are packed into new ones."""

"""The state of Delta tables and checkpoints for pages: followed, audited as they grow, and traced; no HTML."""

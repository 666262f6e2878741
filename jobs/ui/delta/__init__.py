"""What pages show of Delta tables and checkpoints: followed, audited as they grow, and traced; values only, no HTML."""

"""The laboratory: crash matrix, duel, simulator, stories, histories, comparisons with Spark's own pipeline."""

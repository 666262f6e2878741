"""The laboratory: crash matrix, duel, simulator, benchmarks, histories, comparisons with Spark's own pipeline."""

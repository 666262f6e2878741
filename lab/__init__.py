"""The laboratory: crash matrix, simulator, benchmarks, histories."""

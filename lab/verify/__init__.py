"""The crash matrix: crash points, kinds of crash and guarantees, judged only by the source's records."""

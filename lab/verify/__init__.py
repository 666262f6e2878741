"""The crash matrix: crash points, kinds of crash and guarantees, judged from the source's records alone."""

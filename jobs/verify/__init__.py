"""The crash matrix: every crash point with every kind of crash under every guarantee, judged from the source's records."""

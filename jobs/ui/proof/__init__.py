"""What the page Proof shows: runs of `sparkonce verify`, seeds of the simulator, stories; values and their pictures."""

"""The controller: cluster membership, partition leadership, and the log of their changes."""

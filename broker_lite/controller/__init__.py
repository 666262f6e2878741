"""The controller: who is in the cluster, who leads which partition, and the log of how that came to be."""

"""A broker as a member of a cluster: the controller's log, its writer, and its effects on each broker."""

"""A broker as a member of a cluster: the controller's log, who writes it, and what each broker makes of it."""

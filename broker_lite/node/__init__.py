"""One broker's state and services, which handlers work with; no sockets and no threads."""

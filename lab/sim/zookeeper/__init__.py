"""A simulated ZooKeeper with its guarantees: servers that lag behind, sessions, versions, watches, a client."""

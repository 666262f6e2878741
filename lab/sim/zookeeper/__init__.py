"""A ZooKeeper that is played by its guarantees: servers that lag behind, sessions, versions, watches, a client."""

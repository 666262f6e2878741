"""The command `sparkonce peek`: records of a topic, decoded for people to read."""

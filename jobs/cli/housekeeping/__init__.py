"""What the commands `offsets`, `compact` and `clean` share, and what they do besides reading a command line."""

"""Where offsets live."""

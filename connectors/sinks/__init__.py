"""What the sinks share: the steps of a micro-batch, places to write to, dead letters."""

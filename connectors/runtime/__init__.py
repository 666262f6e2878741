"""The Python processes that Spark starts: what they are started by, load, compile and keep."""

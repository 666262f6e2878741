"""The Python processes that Spark starts: how they are started, what they load, compile and keep."""

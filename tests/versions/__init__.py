"""The distribution in empty environments: other versions of Python and Spark, and the oldest dependencies."""

"""Lets PySpark find the format ``delta_once`` without a ``register`` call.

PySpark imports every top-level module named ``pyspark_*`` and takes the class `DefaultSource` from each.
"""

from sparkonce.connectors.formats.delta_once import DeltaOnceDataSource as DefaultSource

__all__ = ["DefaultSource"]

"""The session in which Spark looks for formats: the active one of a thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def active_in_thread(session: SparkSession) -> SparkSession:
    """Make a session active in the calling thread, where Spark looks for formats; it is active only in its first one.

    Sessions of Spark Connect need it in no thread.
    """
    if hasattr(session, "_jsparkSession"):
        session._jvm.SparkSession.setActiveSession(session._jsparkSession)  # type: ignore[union-attr]
    return session

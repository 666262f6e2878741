"""Histories of what clients of Kafka saw, and a checker that finds the anomalies in them.

`events.py` says what a history is made of, `reading.py` reads it, `understanding.py` makes sense of it (`model.py`),
and `checker.py` looks for the anomalies of `anomalies.py`, each kind in a file of its own. Run it as
``python -m lab.history FILE...``.
"""

from lab.history.anomalies import Anomaly, AnomalyName
from lab.history.checker import Verdict, check_history, judge
from lab.history.events import Event, HistoryError
from lab.history.reading import event_of, events_of, read_history

__all__ = [
    "Anomaly",
    "AnomalyName",
    "Event",
    "HistoryError",
    "Verdict",
    "check_history",
    "event_of",
    "events_of",
    "judge",
    "read_history",
]

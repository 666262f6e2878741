"""Histories of what Kafka clients observed, and a checker that finds anomalies in them.

`events.py` defines events, `reading.py` parses them, `understanding.py` builds a model of them (`model.py`),
and `checker.py` finds the anomalies of `anomalies.py`, each kind in its own file. Run it as
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

"""The contents of a span, and how the processes of a batch compute the same trace ids.

One trace is one batch, including its repetitions after a crash: the id of the trace is computed from those of
the query and the batch. Each run has its own root span. Spans contain names and numbers, never the contents of a record
or of an error's message.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

Attributes = Mapping[str, str | int]

ROOT = "batch"
_TRACE_BYTES, _SPAN_BYTES = 16, 8


@dataclass(frozen=True, slots=True)
class Interval:
    """A stretch of time, in nanoseconds since 1970."""

    start_ns: int
    end_ns: int

    @classmethod
    def since(cls, start_ns: int) -> Interval:
        """Return the stretch from then until now."""
        return cls(start_ns, max(time.time_ns(), start_ns))


def new_span_id() -> int:
    """Return a random id."""
    return secrets.randbits(8 * _SPAN_BYTES) or 1


@dataclass(frozen=True, slots=True)
class Span:
    """One finished span."""

    name: str
    trace_id: int
    parent_id: int | None
    interval: Interval
    attributes: Attributes
    error: str | None = None
    """The class of the error that ended it."""
    span_id: int = field(default_factory=new_span_id)


@dataclass(frozen=True, slots=True)
class BatchTrace:
    """The trace of one batch, as one run of its query sees it."""

    query_id: str
    run_id: str
    batch_id: int

    @property
    def trace_id(self) -> int:
        """The same in every process, and in every run."""
        return _number(_TRACE_BYTES, self.query_id, self.batch_id)

    @property
    def root_id(self) -> int:
        """The id of this run's root span, the same in every process."""
        return _number(_SPAN_BYTES, self.query_id, self.batch_id, self.run_id)

    def root(self, interval: Interval, attributes: Attributes, error: str | None = None) -> Span:
        """Return the span of the whole batch."""
        return Span(ROOT, self.trace_id, None, interval, self._with_ids(attributes), error, self.root_id)

    def child(
        self,
        name: str,
        interval: Interval,
        attributes: Attributes,
        error: str | None = None,
        *,
        parent_id: int | None = None,
        span_id: int | None = None,
    ) -> Span:
        """Return the span of a step; its parent is the whole batch unless another one is named."""
        parent = self.root_id if parent_id is None else parent_id
        named = self._with_ids(attributes)
        return Span(name, self.trace_id, parent, interval, named, error, span_id or new_span_id())

    def _with_ids(self, attributes: Attributes) -> Attributes:
        return {
            "sparkonce.query.id": self.query_id,
            "sparkonce.query.run_id": self.run_id,
            "sparkonce.batch.id": self.batch_id,
            **attributes,
        }


def _number(size: int, *parts: object) -> int:
    """Return a number of this many bytes, but not 0, which is an invalid id in OpenTelemetry."""
    digest = hashlib.sha256("/".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:size], "big") or 1

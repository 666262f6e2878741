"""Why a batch cannot be written. Each stops the query; each message ends with what to do."""

from __future__ import annotations


class DeliveryError(RuntimeError):
    """A batch that must not be written as it is."""


class InternalError(DeliveryError):
    """An invariant does not hold, so sparkonce has a bug: better no rows than wrong ones."""


class CheckpointError(DeliveryError):
    """Spark's checkpoint is missing something, or holds something that cannot be read or used by this query."""


class PlanError(DeliveryError):
    """With ``handOver=ranges``, Spark does not pass the ranges of the batch, and nothing else, from source to sink."""


class MissingEntryError(CheckpointError):
    """A file of the checkpoint does not exist: it was removed, or never written."""


class OffsetMismatchError(DeliveryError):
    """The batch overlaps what is stored, or leaves a gap after it."""

    def __init__(self, message: str, *, is_overlap: bool = False) -> None:
        """``is_overlap``: whether what is stored is past this batch.

        Another driver wrote it, the checkpoint is an older one, or a RESTORE removed rows and left their offsets.
        """
        super().__init__(message)
        self.is_overlap = is_overlap


class StatefulRestartError(DeliveryError):
    """A stateful query lost its checkpoint, and its state with it."""


class FencedError(DeliveryError):
    """Another driver with the same ``appId`` wrote what this one was about to write."""


class UnknownOutcomeError(DeliveryError):
    """The store failed, and whether the commit landed cannot be found out now."""


class FilesGoneError(DeliveryError):
    """Data files of a batch were removed before a commit named them."""


class TransactionsGoneError(DeliveryError):
    """Kafka has aborted transactions of a batch before they could be committed: they timed out."""

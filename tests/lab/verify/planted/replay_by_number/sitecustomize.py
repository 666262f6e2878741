"""Batches are distinguished by their numbers alone.

One whose number is stored passes for a replay, whatever it was, unless it reaches past the stored offsets; and one
follows the last stored batch if that has the number before it.
"""

from planting import plant


def change(commit):
    from sparkonce.exactly_once.decision import DifferentBatch, DivergedPredecessor, Fresh, Replay

    decide = commit.decide

    def by_number(stored, batch):
        decision = decide(stored, batch)
        if isinstance(decision, DifferentBatch):
            return Replay(decision.stored_batch_id)
        return Fresh() if isinstance(decision, DivergedPredecessor) else decision

    commit.decide = by_number


plant("sparkonce.exactly_once.commit", change)

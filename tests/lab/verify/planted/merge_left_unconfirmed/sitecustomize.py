"""A MERGE that landed before a crash is not looked for: only the driver that made it confirms it."""

from planting import plant


def change(sequence):
    confirming, commit = sequence.NumberedTable.snapshot, sequence.NumberedSnapshot.commit
    own = []

    def snapshot(self):
        if own:
            return confirming(self)
        return sequence.NumberedSnapshot(self, self.intents.snapshot(), self.result.look())

    def commit_and_confirm(self, what):
        own.append(self)
        try:
            commit(self, what)
        finally:
            own.pop()

    sequence.NumberedTable.snapshot = snapshot
    sequence.NumberedSnapshot.commit = commit_and_confirm


plant("sparkonce.connectors.delta_spark.sequence", change)

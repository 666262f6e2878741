"""An unfinished decision: the states of its transactions, and the error if it cannot be finished."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sparkonce.exactly_once.errors import TransactionsGoneError
from sparkonce.exactly_once.transactions import Decision, Fate, PreparedTransaction, Settlement, ranges_text, settle
from sparkonce.words import counted, some_of

HANGING = (
    "readers of committed records wait behind them: kafka-transactions.sh find-hanging shows these, and "
    "kafka-transactions.sh abort ends them"
)
"""The message for transactions that are open in a partition, but unknown to every coordinator."""
NAMED = 5
"""How many transactional ids an error names."""


@dataclass(frozen=True, slots=True)
class Ended:
    """An unfinished decision, and the states of its transactions."""

    decision: Decision
    fates: Mapping[PreparedTransaction, Fate]
    undone: bool = False
    """Whether it was undone, since none of it could be committed."""

    @property
    def settlement(self) -> Settlement:
        """How to resolve it."""
        return settle(list(self.fates.values()))

    @property
    def missing(self) -> list[PreparedTransaction]:
        """The transactions that were not committed, or whose outcome is unknown."""
        return [each for each, fate in self.fates.items() if fate in (Fate.GONE, Fate.UNKNOWN)]

    def error(self, topic: str) -> TransactionsGoneError:
        """Return why it cannot be finished, and what to do; ``topic`` is the one of decisions."""
        decision, record, bad = self.decision, self.decision.record, self.missing
        rows = sum(each.rows for each in bad)
        names = some_of([each.transactional_id for each in bad], NAMED)
        what = (
            f"batch {record.batch_id} of query {record.query_id} (appId {record.app_id}), records "
            f"{ranges_text(record)}, was decided (number {decision.number} in topic {topic})"
        )
        tool = f"sparkonce transactions list --app-id {record.app_id} shows them"
        accept = f"sparkonce transactions finish --app-id {record.app_id} --accept"
        if self.settlement is Settlement.UNKNOWN:
            return TransactionsGoneError(
                f"{what}, and whether all of it was committed is unknown: Kafka no longer knows {len(bad)} of its "
                f"{len(self.fates)} transactional ids ({names}): they expire a week after their last use "
                "(transactional.id.expiration.ms), or the topic __transaction_state was lost. If it was lost, the rows "
                f"may be in transactions that stay open forever, and {HANGING}. {tool}; if the rows are there, "
                f"{accept} marks the batch as finished; if not, it continues without them"
            )
        gone = (
            f"{what}, but {len(bad)} of its {counted(len(self.fates), 'transaction')}, with {rows} of its "
            f"{counted(decision.rows, 'row')}, "
            f"were aborted before they could be committed ({names}): transaction.timeout.ms had passed, or another "
            "client claimed their transactional ids"
        )
        if self.settlement is Settlement.UNDO:
            return TransactionsGoneError(
                f"{gone}. None of its rows is visible. Start the query again: the decision is undone, and the "
                "batch written again. A longer kafka.transaction.timeout.ms gives a driver more time to come back"
            )
        return TransactionsGoneError(
            f"{gone}. The other rows are visible, so the batch cannot be written again without duplicating these: "
            f"the output lacks {counted(rows, 'row')}. {tool}; {accept} continues without them"
        )

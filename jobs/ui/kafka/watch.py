"""A cluster that is read repeatedly: topics, groups, open transactions and sizes, each in a separate thread.

Pages show the last result and never wait for a broker. While there are no readers, topics and groups are still read
from time to time, to have a history for rates and trends.
"""

from __future__ import annotations

from collections.abc import Mapping

from sparkonce.jobs.ui.kafka.groups import GroupsLook
from sparkonce.jobs.ui.kafka.loop import Loop, Result
from sparkonce.jobs.ui.kafka.members import MembersReader
from sparkonce.jobs.ui.kafka.past import EndOffsetHistory
from sparkonce.jobs.ui.kafka.settings import SettingsReader
from sparkonce.jobs.ui.kafka.sizes import SizesLook, TopicSize
from sparkonce.jobs.ui.kafka.state import ClusterState, GroupState, TopicState, TransactionsState
from sparkonce.jobs.ui.kafka.topics import TopicsLook
from sparkonce.jobs.ui.kafka.transactions import TransactionsLook
from sparkonce.kafka.client.settings import read_settings

PATIENCE = {
    "kafka.default.api.timeout.ms": "900",
    "kafka.socket.connection.setup.timeout.ms": "3000",
    "kafka.request.timeout.ms": "3000",
}
"""The timeout of requests to brokers, by default: a stopped one is shown within a second."""
TOPICS_S, GROUPS_S, TRANSACTIONS_S, SIZES_S = 0.3, 0.6, 1.0, 5.0
"""The interval of reads while a page is followed."""
IDLE_S = 5.0
"""The same while no page is."""
FIRST_SIZES_S = 0.5
"""How long a page waits for the first sizes, which it can do without."""


class ClusterWatch:
    """One cluster."""

    def __init__(self, options: Mapping[str, str]) -> None:
        """``options`` have the prefix ``kafka.``. Raises OptionError if one is invalid."""
        self.options = {**PATIENCE, **options}
        settings = read_settings(self.options)
        self.past = past = EndOffsetHistory()
        self.servers = settings.servers_text
        topics, groups = TopicsLook(settings, past), GroupsLook(settings, self.options, past)
        transactions = TransactionsLook(settings)
        self.settings, self.members = SettingsReader(settings), MembersReader(settings)
        sizes = SizesLook(settings)
        self._looks = topics, groups, transactions, sizes
        self._topics = Loop("topics", topics, ClusterState(), TOPICS_S, IDLE_S)
        self._groups: Loop[Mapping[str, GroupState]] = Loop("groups", groups, {}, GROUPS_S, IDLE_S)
        self._transactions = Loop("transactions", transactions, TransactionsState(), TRANSACTIONS_S, None)
        self._sizes: Loop[Mapping[str, TopicSize]] = Loop("sizes", sizes, {}, SIZES_S, None)

    def state(self) -> Result[ClusterState]:
        """Return brokers and topics."""
        return self._topics.result()

    def topic(self, name: str) -> tuple[Result[ClusterState], TopicState | None]:
        """Return a topic; one that was just created is looked up."""
        found = self._topics.result()
        if name not in found.found.topics:
            found = self._topics.next_result()
        return found, found.found.topics.get(name)

    def group(self, group_id: str) -> tuple[Result[Mapping[str, GroupState]], GroupState | None]:
        """Return a group; one that was just created is looked up."""
        found = self._groups.result()
        if group_id not in found.found:
            found = self._groups.next_result()
        return found, found.found.get(group_id)

    def groups(self) -> Result[Mapping[str, GroupState]]:
        """Return consumer groups by their ids."""
        return self._groups.result()

    def transactions(self) -> Result[TransactionsState]:
        """Return open transactions."""
        return self._transactions.result()

    def sizes(self) -> Mapping[str, TopicSize]:
        """Return the sizes of topics on disk, as far as they are known."""
        return self._sizes.result(FIRST_SIZES_S).found

    def close(self) -> None:
        """Stop reading, and close all connections."""
        for loop in (self._topics, self._groups, self._transactions, self._sizes):
            loop.close()
        for look in self._looks:
            look.close()
        self.settings.close()
        self.members.close()

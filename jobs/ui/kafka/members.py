"""The members of a group, asked for while its page is open."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sparkonce.jobs.ui.kafka.answers import Answers
from sparkonce.jobs.ui.kafka.loop import PROBLEMS
from sparkonce.kafka.client.client import Client
from sparkonce.kafka.client.groups import GroupMember, group_members
from sparkonce.kafka.client.settings import ClientSettings

KEPT_S = 1.0
"""How long a response is cached."""


@dataclass(frozen=True, slots=True)
class Members:
    """The members of one group, or why they are unknown."""

    all: Sequence[GroupMember] = ()
    problem: str | None = None


class MembersReader:
    """Requests members; any thread may call it."""

    def __init__(self, settings: ClientSettings) -> None:
        self._answers: Answers[Client, Sequence[GroupMember]] = Answers(Client(settings), PROBLEMS, KEPT_S)

    def of(self, group_id: str, kind: str) -> Members:
        """Return the members of a group of this kind."""
        found, problem = self._answers.get((group_id, kind), lambda client: group_members(client, group_id, kind))
        return Members((), str(problem)) if problem else Members(found or ())

    def close(self) -> None:
        """Close all connections."""
        self._answers.close()

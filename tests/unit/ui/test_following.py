"""What followers of a page are sent, without a server."""

from __future__ import annotations

import asyncio

from sparkonce.jobs.ui.following import Following
from sparkonce.jobs.ui.rendering import Rendered


def test_a_page_that_can_be_read_no_more_ends_its_streams() -> None:
    """A browser then connects again; otherwise it would keep an old state and call it live."""
    looks = iter([Rendered("first"), Rendered("second")])

    async def follow() -> list[str]:
        events = Following().follow("page", "", lambda: next(looks), 0.0)
        return [event async for event in events]

    got = asyncio.run(follow())
    assert [event.partition("data: ")[2].strip() for event in got[1:3]] == ['"first"', '"second"']
    assert got[3:] == ["retry: 5000\n\n"]

"""A topic's messages, decoded as in `sparkonce peek`: paging, and search by offset, time, key, text."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

from sparkonce.jobs.cli.peek.decoding import Cell, Decoded, Form, iso
from sparkonce.jobs.cli.peek.reading import FIRST, PeekError, Start, Wanted
from sparkonce.jobs.cli.peek.showing import about, one_line, value_text
from sparkonce.jobs.shared.arguments import timestamp_ms, whole_number
from sparkonce.jobs.ui.kafka.messages import Bounds, Screen, Search, positions_text, read_positions
from sparkonce.jobs.ui.kafka.readers import COMMITTED, ISOLATION
from sparkonce.jobs.ui.kafka.state import TopicState
from sparkonce.jobs.ui.page import Page, PageRequest
from sparkonce.jobs.ui.pages.topic import topic_of
from sparkonce.jobs.ui.site import Site
from sparkonce.offset_store.secrets import without_secrets

COUNTS = (25, 50, 100, 250)
MAX_PARTITIONS = 64
"""Of a topic with more, one partition is shown at a time."""
MAX_LINE, MAX_ABOUT, MAX_TEXT = 300, 5_000, 20_000
"""Characters to show: of a key or value in its line, and expanded, of key and headers, and of the value."""


@dataclass(frozen=True, slots=True)
class Query:
    """The form's fields; `problem` says which is invalid."""

    wanted: Wanted
    begin: str
    """Where to begin, among the choices of the form."""
    newest: bool
    count: int
    search: Search
    before: Mapping[int, int] | None
    after: Mapping[int, int] | None
    problem: str | None


@dataclass(frozen=True, slots=True)
class Row:
    """A record's row on the page."""

    name: str
    partition: int
    offset: int
    at: str
    key: str | None
    """On one line; None for null."""
    value: str | None
    headers: int
    about: str
    """The key, the headers, and the schema, in lines."""
    text: str
    """The value, in lines."""
    kind: str
    """``json`` if it is that, ``cut`` if there is more of it."""


def _data(site: Site, asked: PageRequest) -> Mapping[str, Any]:
    topic = topic_of(site, asked.path["topic"])
    query, problem, screen = _query(topic, asked), None, None
    rows: Sequence[Row] = ()
    if query.problem is None:
        try:
            screen, rows = _screen(site, topic, asked, query)
        except PeekError as error:
            problem = str(error)
    backward = query.after is None and (query.newest or query.before is not None)
    assert site.cluster is not None, "it has this topic"
    return {
        "state": site.cluster.state(),
        "topic": topic,
        "query": query,
        "problem": query.problem or problem,
        "counts": COUNTS,
        "partition": query.wanted.partitions[0] if query.wanted.partitions else None,
        "must_choose": len(topic.partitions) > MAX_PARTITIONS,
        "screen": screen,
        "backward": backward,
        "rows": rows[::-1] if backward else rows,
        "links": {} if screen is None else _links(asked, screen),
        "peek": _command(site, topic, query, asked, screen),
    }


def _query(topic: TopicState, asked: PageRequest) -> Query:
    given, problem = asked.query, None
    partitions: tuple[int, ...] = ()
    if given.get("partition"):
        partitions = (asked.number("partition", 0, 2**31 - 1),)
    elif len(topic.partitions) > MAX_PARTITIONS:
        partitions = (0,)
    start, from_ms = None, None
    at = given.get("at", "").strip()
    begin = _begin(given.get("begin", "newest"), at)
    if begin == "offset":
        try:
            start = Start(whole_number(at))
        except argparse.ArgumentTypeError as error:
            problem = f"The offset to begin at: {error}."
    elif begin == "time":
        try:
            from_ms = timestamp_ms(at)
        except argparse.ArgumentTypeError as error:
            problem = f"The time to begin at: {error}."
    elif begin == "oldest":
        start = FIRST
    key, text = given.get("key", ""), given.get("text", "")
    search = Search(None, text or None)
    if key:
        try:
            search = Search(bytes.fromhex(key[4:]) if key.startswith("hex:") else key.encode(), text or None)
        except ValueError:
            problem = "The key: pairs of hexadecimal digits are expected behind hex:."
    return Query(
        Wanted(partitions, start, from_ms),
        begin,
        start is None and from_ms is None,
        min(max(asked.number("count", COUNTS[1]), 1), COUNTS[-1]),
        search,
        read_positions(given.get("before", "")),
        read_positions(given.get("after", "")),
        problem,
    )


def _begin(chosen: str, at: str) -> str:
    """Return where to begin: what is typed counts, also where the choice beside it was left as it is."""
    if chosen in ("offset", "time") or not at:
        return chosen
    return "offset" if at.isdecimal() else "time"


def _screen(site: Site, topic: TopicState, asked: PageRequest, query: Query) -> tuple[Screen, Sequence[Row]]:
    """Return what is asked for; read again only if the log has changed. Only rows are cached: records may be large."""
    chosen = [
        each for each in topic.partitions if not query.wanted.partitions or each.partition in query.wanted.partitions
    ]
    state = tuple((each.start, each.stable) for each in chosen)

    def read() -> tuple[Screen, Sequence[Row]]:
        screen = found()
        return replace(screen, records=()), [_row(each) for each in screen.records]

    def found() -> Screen:
        with site.messages(topic.name) as messages:
            bounds = messages.bounds(query.wanted)
            if query.after is not None:
                return messages.forward(_within(bounds, query.after, at=0), query.count, query.search)
            if query.before is not None:
                whole = messages.bounds(Wanted(query.wanted.partitions))
                return messages.backward(_within(whole, query.before, at=1), query.count, query.search)
            return (messages.backward if query.newest else messages.forward)(bounds, query.count, query.search)

    key = topic.topic_id, topic.name, tuple(sorted(asked.query.items())), state
    return site.screens.get(key, read, lambda found: sum(len(each.text) + len(each.about) for each in found[1]))


def _within(bounds: Bounds, positions: Mapping[int, int], at: int) -> Bounds:
    """Return bounds whose first (0) or last (1) offsets are these positions, clamped."""
    found = {}
    for partition, (first, end) in bounds.items():
        position = min(max(positions.get(partition, (first, end)[at]), first), end)
        found[partition] = (first, position) if at else (position, end)
    return found


def _links(asked: PageRequest, screen: Screen) -> Mapping[str, str]:
    kept = {name: value for name, value in asked.query.items() if name not in ("before", "after")}
    return {
        "older": "?" + urlencode({**kept, "before": positions_text(screen.before)}),
        "newer": "?" + urlencode({**kept, "after": positions_text(screen.after)}),
    }


def _row(each: Decoded) -> Row:
    record = each.record
    value, size = value_text(each.value, MAX_TEXT), len(record.value or b"")
    return Row(
        f"m-{record.partition}-{record.offset}",
        record.partition,
        record.offset,
        (iso(record.timestamp_ms) or "no timestamp").replace("T", " ").removesuffix("Z"),
        _line(each.key),
        _line(each.value),
        len(record.headers),
        _cut("\n".join(about(each)), MAX_ABOUT),
        value if len(value) <= MAX_TEXT else f"{value[:MAX_TEXT]}… ({size:,} bytes in all)",
        "cut" if len(value) > MAX_TEXT else "json" if each.value.form is Form.TREE else "",
    )


def _line(cell: Cell) -> str | None:
    return None if cell.form is Form.NULL and cell.problem is None else _cut(one_line(cell), MAX_LINE)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}… ({len(text):,} characters)"


def _command(site: Site, topic: TopicState, query: Query, asked: PageRequest, screen: Screen | None) -> str | None:
    """Return the command that shows the same, for what is too long here; None if none does."""
    assert site.cluster is not None, "it has this topic"
    start = None if query.wanted.start is None else query.wanted.start.offset
    if query.before is not None or query.after is not None:  # another screen than the first one
        if screen is None or len(screen.before) != 1:
            return None  # its partitions begin at different offsets
        (start,) = screen.before.values()
    words = ["sparkonce", "peek", topic.name, "--bootstrap-servers", site.cluster.servers, "-n", str(query.count)]
    for partition in query.wanted.partitions:
        words += ["-p", str(partition)]
    if start is not None:
        words += ["--offset", str(start)]
    elif query.wanted.from_ms is not None:
        words += ["--from", asked.query["at"].strip()]
    if asked.query.get("key"):
        words.append(f"--key={asked.query['key']}")
    if query.search.text is not None:
        words.append(f"--text={query.search.text}")
    words += ["--kafka", f"isolation.level={site.cluster.options.get(ISOLATION, COMMITTED)}"]
    registry = site.given.registry.get("schemaRegistry.url")
    if registry is not None and without_secrets(registry, {}) == registry:
        words += ["--registry", registry]
    return shlex.join([*words, "--output", "pretty"])


MESSAGES = Page("/topics/{topic}/messages", "Messages", "messages.html", _data)

"""Whether a query into Kafka is a mirror, and whether it would read what it writes."""

from __future__ import annotations

import os

from sparkonce.connectors.direct.source import DirectSource
from sparkonce.connectors.kafka_sink.options import FORMAT, KafkaSinkOptions
from sparkonce.connectors.kafka_source.options import SourceOptions
from sparkonce.connectors.runtime.cache import LruCache
from sparkonce.connectors.values.read_options import ROW_SETTINGS
from sparkonce.exactly_once.guarantee import Guarantee
from sparkonce.kafka.client.client import shared_client
from sparkonce.options import OptionError

_OF_ROWS = {name.lower(): name for name in ROW_SETTINGS}


def is_mirror(options: KafkaSinkOptions, source: DirectSource | None) -> bool:
    """Return whether records are copied unchanged. Raises OptionError if options exclude that, or have no effect."""
    reason = _reason_against(options, source)
    if options.mirror and reason is not None:
        raise OptionError(f"{FORMAT}: option mirror=true copies whole records as they are, but {reason}")
    chosen = reason is None if options.mirror is None else options.mirror
    if not chosen and options.keep_partitions is not None:
        why = reason or "mirror=false is set: leave that out"
        raise OptionError(
            f"{FORMAT}: option keepPartitions is for a mirror, which this query is not: {why}. Otherwise the column "
            "partition says where a row goes; leave the option out"
        )
    return chosen


def _reason_against(options: KafkaSinkOptions, source: DirectSource | None) -> str | None:
    """Return why a query is not a mirror, and the remedy; None if it may be one."""
    if source is None:
        return "Spark passes rows to the sink: set handOver=ranges on the source, with nothing in between"
    of_rows = sorted(_OF_ROWS[name] for name in source.hand_over.options if name in _OF_ROWS)
    if of_rows:
        return f"the source has the option {of_rows[0]}, so its rows are not whole records: leave it out there"
    if options.sql is not None:
        return "the option sql makes other rows of them: leave it out"
    if options.encoded:
        column = options.encoded[0]
        return f"{column.column}Format={column.form} writes {column.column}s with a schema: leave it out"
    if not options.include_headers:
        return "includeHeaders=false leaves headers out: remove it"
    if options.dead_letters is not None:
        return "deadLetters needs rows with the column _dead_letter: remove it"
    return None


def check_no_loop(options: KafkaSinkOptions, source: DirectSource) -> None:
    """Check that a direct query does not read what it writes: it would never end.

    Where the addresses of the brokers differ, topics are compared by their ids, which are unique over all clusters.

    Raises:
        OptionError: if it does.
        KafkaUnreachableError: if a cluster does not answer.
    """
    reads = source.options
    written = _written(options, reads)
    common = None if written is None else frozenset(topic for topic in written if _is_read(reads, topic))
    if common is not None and not common:
        return
    if options.client.bootstrap_servers == reads.settings.bootstrap_servers:
        raise OptionError(_text(options, sorted(common) if common else ["its topics"]))
    key = os.getpid(), options.client, reads.settings, common, reads.pattern and reads.pattern.text
    if not _compared.get(key, lambda: _compare(options, reads, common)):
        _compared.pop(key)  # there is nothing to read yet


_compared: LruCache[tuple[object, ...], int] = LruCache()
"""How many topics were compared, by what was compared."""


def _written(options: KafkaSinkOptions, reads: SourceOptions) -> frozenset[str] | None:
    """Return the topics that are written to, except those that rows of the option sql name; None: all of a pattern."""
    named = set[str]()
    if options.topic is not None:
        named.add(options.topic)
    elif options.sql is None and reads.pattern is not None:
        return None
    elif options.sql is None:
        named.update(reads.topics)
    if options.dead_letters is not None and options.dead_letters.topic is not None:
        named.add(options.dead_letters.topic)
    if options.guarantee is Guarantee.EXACTLY_ONCE:
        named.add(options.decision_topic)
    return frozenset(named)


def _is_read(reads: SourceOptions, topic: str) -> bool:
    return topic in reads.topics or (reads.pattern is not None and reads.pattern.finds(topic))


def _compare(options: KafkaSinkOptions, reads: SourceOptions, common: frozenset[str] | None) -> int:
    """Compare both clusters' topics, and count those that are read. Raises OptionError if one is the same on both."""
    client = shared_client(reads.settings, reached=True)  # by the source, which has planned the batch
    if common is None:
        assert reads.pattern is not None, "other topics are named"
        read = client.matching_topics(reads.pattern.finds)
    else:
        read = client.existing_topics(common)
    written = shared_client(options.client).existing_topics(read) if read else {}
    same = sorted(name for name, topic in written.items() if topic.topic_id and topic.topic_id == read[name].topic_id)
    if same:
        raise OptionError(_text(options, same))
    return len(read)


def _text(options: KafkaSinkOptions, topics: list[str]) -> str:
    what = ", ".join(topics)
    if options.topic is None and options.decision_topic not in topics:
        return (
            f"{FORMAT}: without the option topic, records go to the topic that they come from ({what}), on the same "
            "cluster: the query would read what it writes, and never end. Set the option topic, or write to another "
            "cluster (kafka.bootstrap.servers)"
        )
    return (
        f"{FORMAT}: the query writes to {what}, which its source reads, on the same cluster: it would read what it "
        "writes, and never end. Write to another topic, or leave it out of what the source reads"
    )

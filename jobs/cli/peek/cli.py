"""The command `sparkonce peek`: show the records of a topic, decoded (docs/peek.md)."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from itertools import chain, islice
from typing import TYPE_CHECKING

from sparkonce.broker_lite.config import ConfigError
from sparkonce.jobs.cli.peek.clients import SERVERS, add_registry, kafka_and_registry, open_registry
from sparkonce.jobs.shared.arguments import UsageError, add_kafka, positive, timestamp_ms, whole_number
from sparkonce.jobs.shared.exit_status import FAILED, GOOD, USAGE
from sparkonce.kafka.protocol.errors import KafkaError
from sparkonce.options import OptionError

if TYPE_CHECKING:
    from sparkonce.connectors.schema_registry.client import Registry
    from sparkonce.jobs.cli.peek.reading import FetchedRecord, Start, TopicReader, Wanted

NAME = "peek"
COUNT = 10
SAMPLES = 1000
"""The number of records from which a schema is inferred."""
AT_ONCE = 500
"""The number of records decoded together."""
ALL = "all"
TABLE, PRETTY, JSON, RAW = FORMS = ("table", "pretty", "json", "raw")
_WORDS = {"earliest": (0, False), "beginning": (0, False), "latest": (0, True), "end": (0, True)}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.epilog = (
        "without --offset, --from and --follow it shows the newest records. exit status: 0 shown; 1 the brokers or the "
        "registry do not answer, or have no such topic; 2 the options cannot be used"
    )
    parser.add_argument("topic", metavar="TOPIC")
    add_kafka(parser, "brokers to ask")
    _add_choice(parser)
    parser.add_argument("-o", "--output", choices=FORMS, default=TABLE, help="how records are written (default: table)")
    parser.add_argument(
        "--schema", action="store_true", help="print a valueSchema for these values, from the registry or from samples"
    )
    add_registry(parser)
    parser.add_argument("--subject", help="with --schema: the subject (default: TOPIC-value)")


def _add_choice(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-n", dest="count", metavar="N", type=_count, help=f"how many records, or {ALL} (default: {COUNT}; all with "
        "--follow)",
    )  # fmt: skip
    parser.add_argument("-p", "--partition", type=whole_number, action="append", help="this one only; repeatable")
    parser.add_argument(
        "--offset",
        metavar="OFFSET",
        type=_offset,
        help="where to begin in each partition: a number, earliest, latest, or -N for the last N offsets",
    )
    parser.add_argument(
        "--from", dest="from_ms", metavar="TIME", type=timestamp_ms, help="from this time on, in ISO form"
    )
    parser.add_argument("--until", dest="until_ms", metavar="TIME", type=timestamp_ms, help="records before this time")
    parser.add_argument(
        "--key", help="only records whose key has these bytes, before it is decoded: a text, or hex:00ff"
    )
    parser.add_argument("--text", help="only records with this text in key or value as they are shown, in any case")
    parser.add_argument("-f", "--follow", action="store_true", help="go on with records that arrive, until Ctrl+C")


def _count(text: str) -> int:
    return 0 if text == ALL else positive(text)


def _offset(text: str) -> tuple[int, bool]:
    if text in _WORDS:
        return _WORDS[text]
    if text.startswith("-"):
        return positive(text[1:]), True
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number, -N, {', '.join(_WORDS)}")
    return whole_number(text), False


def run(options: argparse.Namespace) -> int:
    """Show records; return the exit status."""
    try:
        kafka, registry = _settings(options)
    except (UsageError, OptionError, ConfigError) as error:
        print(f"sparkonce peek: {str(error).removeprefix(f'{NAME}: ')}", file=sys.stderr)
        return USAGE
    from sparkonce.connectors.kafka_source.decode import CorruptBatchError
    from sparkonce.connectors.schema_registry.client import RegistryError
    from sparkonce.jobs.cli.peek.reading import PeekError
    from sparkonce.kafka.client.client import KafkaUnreachableError
    from sparkonce.kafka.client.metadata import MissingTopicError

    try:
        with ExitStack() as stack:
            reader = stack.enter_context(closing(_reader(options, kafka, registry)))
            if registry is not None:
                stack.enter_context(closing(registry))
            return _schema(options, reader, registry) if options.schema else _show(options, reader, registry)
    except KeyboardInterrupt:
        return GOOD
    except OptionError as error:
        print(f"sparkonce peek: {error}", file=sys.stderr)
        return USAGE
    except (
        CorruptBatchError,
        KafkaError,
        KafkaUnreachableError,
        MissingTopicError,
        PeekError,
        RegistryError,
        TimeoutError,
    ) as error:
        from sparkonce.jobs.cli.peek.showing import safe

        told = "\n".join(map(safe, str(error).split("\n")))  # may contain a registry's own text
        print(f"sparkonce peek: {told}", file=sys.stderr)
        return FAILED


def _settings(options: argparse.Namespace) -> tuple[dict[str, str], Registry | None]:
    """Return the options of the Kafka client and of the registry. Raises UsageError, OptionError or ConfigError."""
    _check(options)
    kafka, registry = kafka_and_registry(options)
    if SERVERS not in kafka:
        raise UsageError("--bootstrap-servers is missing: host:port of one or more brokers")
    return kafka, open_registry(NAME, registry, kafka)


def _check(options: argparse.Namespace) -> None:
    if options.offset is not None and options.from_ms is not None:
        raise UsageError("--offset and --from both say where to begin: leave one out")
    if options.follow and (options.until_ms is not None or options.schema):
        raise UsageError("--follow has no end: leave --until and --schema out")
    if options.subject is not None and not options.schema:
        raise UsageError("--subject is for --schema")
    if options.from_ms is not None and options.until_ms is not None and options.from_ms >= options.until_ms:
        raise UsageError("--until must be after --from")


def _reader(options: argparse.Namespace, kafka: Mapping[str, str], registry: Registry | None) -> TopicReader:
    from sparkonce.jobs.cli.peek.decoding import Decoder
    from sparkonce.jobs.cli.peek.reading import TopicReader
    from sparkonce.jobs.cli.peek.showing import has_text

    if options.text is None:
        return TopicReader(kafka, options.topic)
    decoder = Decoder(registry)

    def keep(records: Sequence[FetchedRecord]) -> Iterable[FetchedRecord]:
        return (each.record for each in decoder.decode(records) if has_text(each, options.text))

    return TopicReader(kafka, options.topic, keep)


def _wanted(options: argparse.Namespace) -> Wanted:
    from sparkonce.jobs.cli.peek.reading import LAST, Start, Wanted

    start: Start | None = None if options.offset is None else Start(*options.offset)
    if start is None and options.from_ms is None and options.follow:
        start = LAST
    return Wanted(tuple(options.partition or ()), start, options.from_ms, options.until_ms)


def _key(options: argparse.Namespace) -> bytes | None:
    if options.key is None:
        return None
    if not options.key.startswith("hex:"):
        return str(options.key).encode()
    try:
        return bytes.fromhex(options.key.removeprefix("hex:"))
    except ValueError:
        raise OptionError(f"--key {options.key}: expected pairs of hexadecimal digits behind hex:") from None


def _records(options: argparse.Namespace, reader: TopicReader, default: int) -> Iterator[Sequence[FetchedRecord]]:
    """Yield the requested records, in groups that are decoded together."""
    wanted, key = _wanted(options), _key(options)
    count = default if options.count is None else options.count
    bounds = reader.bounds(wanted)
    if options.follow:
        left = options.count or None
        for arrived in reader.follow(bounds, key):
            yield arrived[:left]
            left = None if left is None else left - len(arrived)
            if left is not None and left <= 0:
                return
    elif wanted.start is None and wanted.from_ms is None and count:
        yield reader.last(bounds, count, key)
    else:
        records = iter(reader.first(bounds, count or None, key))
        while piece := list(islice(records, AT_ONCE)):
            yield piece


def _show(options: argparse.Namespace, reader: TopicReader, registry: Registry | None) -> int:
    from sparkonce.jobs.cli.peek import showing
    from sparkonce.jobs.cli.peek.decoding import Decoder

    decoder, first, shown = Decoder(registry), True, 0
    terminal = sys.stdout.isatty()
    width = shutil.get_terminal_size().columns if terminal else None
    for piece in _records(options, reader, COUNT):
        decoded = decoder.decode(piece)
        shown += len(decoded)
        if options.output == RAW:
            sys.stdout.flush()
            sys.stdout.buffer.write(b"".join(showing.raw(each, terminal=terminal) for each in decoded))
            sys.stdout.buffer.flush()
        elif options.output == JSON:
            _print(showing.as_json(each, options.topic) for each in decoded)
        elif options.output == PRETTY:
            _print(chain.from_iterable(map(showing.block, decoded)))
        else:
            _print(showing.table(decoded, width, heading=first))
        first = False
    if not shown:
        print(f"sparkonce peek: no record of topic {options.topic} is what was asked for", file=sys.stderr)
    return GOOD


def _print(lines: Iterator[str]) -> None:
    for line in lines:
        print(line.encode(sys.stdout.encoding or "utf-8", "backslashreplace").decode(sys.stdout.encoding or "utf-8"))
    sys.stdout.flush()


def _schema(options: argparse.Namespace, reader: TopicReader, registry: Registry | None) -> int:
    """Print a schema; its description goes to standard error."""
    from sparkonce.jobs.cli.peek.choosing import inferred, registered
    from sparkonce.jobs.cli.peek.showing import safe

    if registry is not None:
        found = registered(registry, options.subject or f"{options.topic}-value")
    else:
        records = list(chain.from_iterable(_records(options, reader, SAMPLES)))
        found = inferred(options.topic, records)
    print(f"# {safe(found.about)}", file=sys.stderr)
    lines = found.text.split("\n")
    # A file gets the schema unchanged; text from records and registries must not control a terminal.
    _print(("\t".join(map(safe, each.split("\t"))) if sys.stdout.isatty() else each) for each in lines)
    return GOOD

"""The command `sparkonce offsets`: show stored offsets, set them, take them back.

`set` and `rewind` show what would change, and change it only with ``--apply``. Decision and commit use one
handle of the table; ``--if-version`` also ties that commit to an earlier dry run.
"""

from __future__ import annotations

import argparse

from sparkonce.jobs.cli.housekeeping.offsets_file import topic_id
from sparkonce.jobs.shared.arguments import add_kafka, add_table, positive, table, timestamp_ms, whole_number


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the actions."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    show = actions.add_parser("show", help="what is stored, who moved it last, and the lag if a broker is named")
    _add_common(show)
    show.add_argument("--app-id", help="this application only")
    show.add_argument("--json", action="store_true", help="as JSON, which `set --from-json` reads")
    show.add_argument("--source", help="for --starting-offsets: the option source, where the pipeline has several")
    show.add_argument(
        "--starting-offsets",
        action="store_true",
        help="as the option startingOffsets of Spark's Kafka source, for one application (asks the brokers)",
    )
    setter = actions.add_parser("set", help="set next offsets by hand (a dry run without --apply)")
    _add_common(setter)
    setter.add_argument("--app-id", help="the option appId of the pipeline")
    setter.add_argument("--source", help="the option source of the reader, where the pipeline has several")
    setter.add_argument("--topic", help="the topic's name")
    setter.add_argument(
        "--topic-id", type=topic_id, help="its id, where the table does not know the name or knows several"
    )
    setter.add_argument("--partition", type=whole_number)
    setter.add_argument("--offset", type=whole_number, help="the offset to read next")
    setter.add_argument("--from-json", metavar="FILE", help="many at once, as `show --json` writes them; - is stdin")
    setter.add_argument(
        "--from-checkpoint",
        metavar="DIR",
        help="those of Spark's Kafka source in a checkpoint, up to the last batch in this table (asks the brokers)",
    )
    _add_apply(setter)
    rewind = actions.add_parser("rewind", help="take offsets back to an older version (a dry run without --apply)")
    _add_common(rewind)
    rewind.add_argument("--app-id", help="the option appId of the pipeline; with --restore, all of them go back")
    target = rewind.add_mutually_exclusive_group(required=True)
    target.add_argument("--to-version", type=whole_number, metavar="V", help="the version to go back to")
    target.add_argument("--to-timestamp", type=timestamp_ms, metavar="T", help="the newest version at or before T")
    target.add_argument("--batches", type=positive, metavar="N", help="the version before the last N batches")
    rewind.add_argument(
        "--restore", action="store_true", help="take the rows back too, and batch numbers, in the same commit"
    )
    _add_apply(rewind)
    copy = actions.add_parser(
        "copy", help="take offsets over from the table that this one is a clone of (a dry run without --apply)"
    )
    _add_common(copy)
    copy.add_argument("--app-id", help="this application only; all, if left out")
    copy.add_argument(
        "--from", dest="source_table", type=table, metavar="TABLE", help="the other table, if it has moved since"
    )
    copy.add_argument(
        "--from-version", type=whole_number, metavar="V", help="its version that was cloned, if the log no longer says"
    )
    _add_apply(copy)


def _add_common(parser: argparse.ArgumentParser) -> None:
    add_table(parser)
    add_kafka(parser, "ask these brokers for topics and lag")


def _add_apply(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--apply", action="store_true", help="do it; without this, only say what would change")
    parser.add_argument(
        "--if-version", type=whole_number, metavar="V", help="only if no offset has moved since version V of the table"
    )
    parser.add_argument(
        "--despite-unconfirmed",
        action="store_true",
        help="for writes by delta-spark: even if one was begun and is not confirmed, which may be in the result",
    )


def run(options: argparse.Namespace) -> int:
    """Run the action; 0 if it succeeded, 1 with a message if not, 2 for invalid arguments."""
    from sparkonce.jobs.cli.housekeeping import offset_actions

    return offset_actions.run(options)

"""The command `sparkonce transactions`: list the Kafka sink's open transactions and why; finish or abort them.

`list` changes nothing. `finish` does what the next start of the query would do about the last decision. `abort` ends
undecided ones, only with ``--apply``. Neither ever aborts a decided one.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Iterator

from sparkonce.broker_lite.config import ConfigError
from sparkonce.connectors.kafka_sink import administration
from sparkonce.connectors.kafka_sink.administration import AdministrationError
from sparkonce.connectors.kafka_sink.decisions import DEFAULT_TOPIC, DecisionLog, DecisionTopicError
from sparkonce.connectors.kafka_sink.driver import Driver, Scope
from sparkonce.connectors.kafka_sink.transactions import State, TransactionError
from sparkonce.connectors.kafka_sink.unfinished import Ended
from sparkonce.exactly_once.errors import DeliveryError
from sparkonce.exactly_once.transactions import DecisionFormatError, Decisions, Fate, ranges_text
from sparkonce.jobs.cli.housekeeping.open_transactions import look
from sparkonce.jobs.cli.housekeeping.transactions_report import as_json, as_text, batch_text, size_text
from sparkonce.jobs.shared.arguments import UsageError, add_kafka
from sparkonce.jobs.shared.exit_status import FAILED, GOOD, USAGE
from sparkonce.jobs.shared.kafka_options import settings_from
from sparkonce.kafka.client.client import Client
from sparkonce.kafka.client.metadata import MissingTopicError
from sparkonce.kafka.client.settings import command_settings
from sparkonce.kafka.protocol.errors import KafkaError
from sparkonce.offset_store.clock import now_ms
from sparkonce.offset_store.errors import OffsetStoreError
from sparkonce.options import OptionError
from sparkonce.words import counted

PROGRESS_FROM = 100
"""Ending more transactions than this takes a moment."""
EXAMPLES = """
examples:
  sparkonce transactions list --bootstrap-servers localhost:9092
  sparkonce transactions list --bootstrap-servers localhost:9092 --app-id orders --json
  sparkonce transactions finish --bootstrap-servers localhost:9092 --app-id orders
  sparkonce transactions abort --bootstrap-servers localhost:9092 --app-id orders --apply

exit status: 0 if all is well and done, 1 if something is lost or could not be done, 2 if the command line cannot be
used
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the three actions."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EXAMPLES
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    shown = actions.add_parser("list", help="open transactions of the sink, why they are open, and the last decisions")
    _add_common(shown)
    shown.add_argument("--app-id", help="this application only")
    shown.add_argument("--json", action="store_true", help="as JSON")
    finish = actions.add_parser(
        "finish",
        help="commit what the last decision says, or take it back if nothing of it can be committed",
        description="What the next start of the query does about the last decision. A running query is not disturbed, "
        "unless the decision has to be undone: that fences its driver.",
    )
    _add_common(finish)
    finish.add_argument("--app-id", required=True, help="the option appId of the pipeline")
    finish.add_argument(
        "--accept",
        action="store_true",
        help="if transactions that were decided are gone, commit the others and go on without the rows of these",
    )
    abort = actions.add_parser(
        "abort",
        help="abort what is open and not decided (a dry run without --apply)",
        description="What the next start of the query does about transactions that no decision names. A running query "
        "is fenced, and its batch fails.",
    )
    _add_common(abort)
    abort.add_argument("--app-id", required=True, help="the option appId of the pipeline")
    abort.add_argument("--transactional-id", metavar="ID", help="this one only")
    abort.add_argument("--apply", action="store_true", help="do it; without this, only say what would be aborted")


def _add_common(parser: argparse.ArgumentParser) -> None:
    add_kafka(parser, "the brokers that the sink writes to")
    parser.add_argument(
        "--decision-topic", metavar="TOPIC", help=f"the option decisionTopic of the pipeline (default {DEFAULT_TOPIC})"
    )


def run(options: argparse.Namespace) -> int:
    """Run the action; 0 if it succeeded, 1 with a message if not, 2 for invalid arguments."""
    try:
        with _client(options) as client:
            if options.action == "list":
                return _list(options, client)
            return _finish(options, client) if options.action == "finish" else _abort(options, client)
    except (UsageError, OptionError, ConfigError) as error:
        print(f"sparkonce transactions {options.action}: {error}", file=sys.stderr)
        return USAGE
    except (
        AdministrationError,
        DecisionFormatError,
        DecisionTopicError,
        DeliveryError,
        KafkaError,
        MissingTopicError,
        OffsetStoreError,
        OSError,
        TransactionError,
    ) as error:
        print(f"sparkonce transactions {options.action}: {error}", file=sys.stderr)
        return FAILED


@contextlib.contextmanager
def _client(options: argparse.Namespace) -> Iterator[Client]:
    kafka = settings_from(options)
    if not kafka:
        raise UsageError("name the brokers: --bootstrap-servers HOST:PORT, or bootstrap.servers in --command-config")
    client = Client(command_settings(kafka))
    try:
        yield client
    finally:
        client.close()


def _topic(options: argparse.Namespace) -> str:
    return options.decision_topic or DEFAULT_TOPIC


def _list(options: argparse.Namespace, client: Client) -> int:
    topic = _topic(options)
    try:
        picture = look(client, topic, options.app_id)
    except DecisionFormatError as error:
        if options.app_id is not None:
            raise
        raise AdministrationError(f"{error}. With --app-id the other applications can be checked") from error
    if options.json:
        print(json.dumps(as_json(picture, topic, now_ms()), indent=2, ensure_ascii=False))
    else:
        print(f"brokers {client.settings.servers_text}, decisions in topic {topic}")
        print("\n".join(as_text(picture, topic, options.app_id, now_ms())))
    return FAILED if any(each.is_hurt for each in picture.applications) else GOOD


def _look(options: argparse.Namespace, client: Client) -> Decisions:
    """Read the decisions, without waiting for open transactions. Raises AdministrationError if the topic is missing."""
    topic = _topic(options)
    try:
        client.topics([topic])
    except MissingTopicError as error:
        raise AdministrationError(
            f"topic {topic} does not exist, so what was decided is unknown. If the query has the option "
            "decisionTopic, name that topic with --decision-topic"
        ) from error
    log = DecisionLog(client, topic, options.app_id)
    decisions = log.look().get(options.app_id, Decisions())
    if options.app_id in log.deciding and options.action == "finish":
        print("a decision is on its way: waiting until it is committed or aborted", file=sys.stderr)
    return decisions


def _driver(options: argparse.Namespace, client: Client, decisions: Decisions) -> Driver:
    last = decisions.last
    group_id = options.app_id if last is None else last.group_id
    return Driver(Scope(client.settings, options.app_id, _topic(options), group_id), client)


def _finish(options: argparse.Namespace, client: Client) -> int:
    decisions = _look(options, client)
    driver = _driver(options, client, decisions)
    unfinished = decisions.unfinished
    if unfinished is not None and len(unfinished.transactions) >= PROGRESS_FROM:
        print(
            f"ending {counted(len(unfinished.transactions), 'transaction')} of decision {unfinished.number}",
            file=sys.stderr,
        )
    ended = administration.accept(driver) if options.accept else administration.finish(driver)
    if ended is None:
        last = driver.log.read().last
        if last is None:
            raise AdministrationError(f"topic {driver.log.topic} has no decision of appId {options.app_id}")
        print(f"the last decision of appId {options.app_id}, number {last.number}, is finished: nothing to do")
        return GOOD
    print("\n".join(_ended_lines(options, ended)))
    return GOOD


def _ended_lines(options: argparse.Namespace, ended: Ended) -> list[str]:
    decision = ended.decision
    what = (
        f"decision {decision.number} ({batch_text(decision)}, {size_text(decision)}, records "
        f"{ranges_text(decision.record)})"
    )
    if ended.undone:
        return [
            f"undid {what}: {counted(len(ended.missing), 'transaction')} of it had been aborted, and nothing of it "
            "was visible. The offsets stand where they stood before this batch, which the next start of the query "
            f"writes again. A query of appId {options.app_id} that runs now is fenced, and stops at its next decision",
        ]
    committed = sum(fate is Fate.WAITS for fate in ended.fates.values())
    if not ended.fates:
        return [f"marked {what} as finished: its rows were in the decision's own transaction, or there were none"]
    if not ended.missing:
        return [f"finished {what}: committed {committed} of its transactions now, the others were committed before"]
    rows = sum(each.rows for each in ended.missing)
    gone = [each for each in ended.missing if ended.fates[each] is Fate.GONE]
    lines = [
        f"marked {what} as finished",
        f"  {counted(rows, 'row')} in {counted(len(ended.missing), 'transaction')} "
        + ("are missing from the output:" if len(gone) == len(ended.missing) else "are missing, or unknown to Kafka:"),
    ]
    lines += [
        f"    {each.transactional_id} (producer id {each.producer_id}, epoch {each.epoch}): "
        f"{counted(each.rows, 'row')}, {ended.fates[each].value}"
        for each in ended.missing
    ]
    lines.append(
        f"  they were made from records {ranges_text(decision.record, most=1000)}; the other {decision.rows - rows} "
        "rows of these are visible"
    )
    return lines


def _abort(options: argparse.Namespace, client: Client) -> int:
    decisions = _look(options, client)
    driver = _driver(options, client, decisions)
    last = decisions.last
    if options.transactional_id is not None:
        administration.check_undecided(driver, options.transactional_id, last)
        names = [options.transactional_id]
    else:
        decided = {each.transactional_id for each in last.transactions} if last is not None else set()
        found = driver.transactions.open_transactions(driver.scope.prefix, (State.ONGOING,))
        names = [name for name in found if name not in decided]
    if decisions.unfinished is not None:
        print(
            f"decision {decisions.unfinished.number} ({batch_text(decisions.unfinished)}) is not finished, and is left "
            f"as it is: sparkonce transactions finish --app-id {options.app_id}"
        )
    if not names:
        print(f"appId {options.app_id} has no open transaction that is undecided: nothing to abort")
        return GOOD
    _check_topic(options, last is None)
    if options.apply:
        names = administration.abort(driver, options.transactional_id)
    for name in names:
        print(f"  {'aborted' if options.apply else 'would abort'} {name}")
    if options.apply:
        print(
            f"A query of appId {options.app_id} that runs now is fenced and stops; its next start writes the batch "
            "again"
        )
    else:
        print(
            f"Nothing was changed. If a query of appId {options.app_id} runs, these are its batch, which would fail: "
            "its driver is fenced. To abort them, repeat with --apply"
        )
    return GOOD


def _check_topic(options: argparse.Namespace, nothing_decided: bool) -> None:
    """Check for a wrong topic of decisions, with which everything would look undecided.

    Raises:
        AdministrationError: if the topic was not named, and has no decision of this application.
    """
    if nothing_decided and options.decision_topic is None:
        raise AdministrationError(
            f"topic {DEFAULT_TOPIC} has no decision of appId {options.app_id}. Rows whose transactions were decided "
            "elsewhere would be lost: name the option decisionTopic of the query with --decision-topic, even if it is "
            "this topic"
        )

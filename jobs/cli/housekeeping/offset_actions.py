"""The actions of `sparkonce offsets`: what is stored, what would change, and the change."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from dataclasses import replace

from sparkonce.broker_lite.config import ConfigError
from sparkonce.exactly_once.checkpoint import Checkpoint
from sparkonce.exactly_once.errors import CheckpointError
from sparkonce.exactly_once.recovery import (
    RecoveryError,
    check_not_outdated,
    check_settled,
    consequence,
    describe,
    plan_copy,
    plan_rewind,
    plan_set,
    resolve,
    version_at,
    version_before_batches,
)
from sparkonce.jobs.cli.housekeeping import brokers
from sparkonce.jobs.cli.housekeeping.brokers import BrokerView
from sparkonce.jobs.cli.housekeeping.offsets_file import check_key, read_offsets_file
from sparkonce.jobs.cli.housekeeping.offsets_report import as_document, as_text
from sparkonce.jobs.cli.housekeeping.spark_offsets import read_progress, starting_offsets, with_topic_ids
from sparkonce.jobs.shared import kafka_options
from sparkonce.jobs.shared.arguments import UsageError
from sparkonce.jobs.shared.exit_status import FAILED, USAGE
from sparkonce.kafka.protocol.errors import KafkaError
from sparkonce.offset_store.accounted_rows import stored_in
from sparkonce.offset_store.administration import (
    NOTHING_KEPT,
    ChangeKind,
    ManualChange,
    OffsetsTable,
    Stored,
)
from sparkonce.offset_store.clones import CloneSource
from sparkonce.offset_store.errors import OffsetStoreError
from sparkonce.offset_store.locations import Location
from sparkonce.offset_store.record import Writes
from sparkonce.offset_store.secrets import without_secrets
from sparkonce.options import OptionError
from sparkonce.words import counted

DEFAULT_SOURCE = "kafka"


def run(options: argparse.Namespace) -> int:
    """Run an action; 0 if it succeeded, 1 with a message if not, 2 for invalid arguments."""
    try:
        opened = OffsetsTable.open(options.table, dict(options.storage))
        if options.action == "show":
            return _show(options, opened)
        return _carry_out(options, opened, _PLANS[options.action](options, opened))
    except (UsageError, OptionError, ConfigError) as error:
        print(f"sparkonce offsets {options.action}: {error}", file=sys.stderr)
        return USAGE
    except (CheckpointError, OffsetStoreError, RecoveryError, OSError, KafkaError) as error:
        print(f"sparkonce offsets {options.action}: {error}", file=sys.stderr)
        return FAILED


def _show(options: argparse.Namespace, opened: OffsetsTable) -> int:
    every = stored = opened.stored()
    if options.app_id is not None:
        stored = stored.of(options.app_id)
    if options.starting_offsets:
        return _show_starting_offsets(options, stored)
    unreachable: Exception | None = None
    try:
        view = _broker_view(options, stored)
    except (OSError, KafkaError) as error:
        if options.json:
            raise
        view, unreachable = None, error  # what the table has is shown all the same
    document = as_document(opened, stored, view)
    if options.json:
        print(json.dumps(document, indent=2, ensure_ascii=False))
        return 0
    print(f"table {opened.location}, version {opened.version}")
    if not document["applications"]:
        others = ", ".join(sorted(every.app_ids)) if options.app_id else ""
        asked = f" for appId {options.app_id}" if options.app_id else ""
        print(f"no offsets of sparkonce are stored{asked}{f'; appIds here: {others}' if others else ''}")
    for line in as_text(document):
        print(line)
    if unreachable is not None:
        sys.stdout.flush()
        raise unreachable
    return 0


def _show_starting_offsets(options: argparse.Namespace, stored: Stored) -> int:
    if options.app_id is None or not kafka_options.settings_from(options):
        raise UsageError("--starting-offsets needs --app-id and --bootstrap-servers")
    source = options.source or _only_source(stored, options.app_id)
    if source is None:
        raise UsageError(f"appId {options.app_id} has several sources: name one with --source")
    check_not_outdated(stored, str(options.table))
    stored = stored.of_source(source)
    view = _broker_view(options, stored)
    assert view is not None
    print(json.dumps(starting_offsets(stored, view), sort_keys=True))
    return 0


def _planned_set(options: argparse.Namespace, opened: OffsetsTable) -> ManualChange:
    stored = opened.stored()
    single = (options.topic, options.partition, options.offset)
    many = [each for each in (options.from_json, options.from_checkpoint) if each is not None]
    if len(many) + any(each is not None for each in single) > 1:
        raise UsageError("give --from-json, or --from-checkpoint, or --topic, --partition and --offset")
    if options.from_json is not None:
        return plan_set(stored, read_offsets_file(options.from_json, options.app_id))
    if options.from_checkpoint is not None:
        return _planned_from_checkpoint(options, opened, stored)
    if None in single or options.app_id is None:
        raise UsageError(
            "give --app-id, --topic, --partition and --offset, or --from-json FILE, or --from-checkpoint DIR"
        )
    known_id, source = options.topic_id, options.source
    kafka = kafka_options.settings_from(options)
    if known_id is None and kafka:
        known_id = _id_on_broker(options, kafka)
        # A broker that has the topic is as good as a table that has it: a pipeline may be new.
        source = source or _only_source(stored, options.app_id)
    key = resolve(stored, options.app_id, source, options.topic, known_id, options.partition)
    return plan_set(stored, {check_key(key): options.offset})


def _planned_from_checkpoint(options: argparse.Namespace, opened: OffsetsTable, stored: Stored) -> ManualChange:
    kafka = kafka_options.settings_from(options)
    if options.app_id is None or not kafka:
        raise UsageError("--from-checkpoint needs --app-id and --bootstrap-servers")
    source = options.source or _only_source(stored, options.app_id)
    if source is None:
        raise UsageError(f"appId {options.app_id} has several sources: name one with --source")
    progress = read_progress(Checkpoint.open(options.from_checkpoint, dict(options.storage)), opened)
    if not progress.noted_in_table:
        print(
            "WARNING the table has no batch of this query, as Delta's sink would note it. Continue only if its rows "
            "were written by foreachBatch, and into this table"
        )
    view = brokers.ask(kafka, {tp.topic for tp in progress.offsets})
    wanted = with_topic_ids(progress, view, options.app_id, source, kafka[kafka_options.SERVERS])
    checkpoint = without_secrets(options.from_checkpoint, dict(options.storage))  # this stays in the table's log
    origin = f"{checkpoint}: batch {progress.batch_id} of query {progress.query_id}"
    noted = {progress.query_id: progress.batch_id} if progress.noted_in_table else {}
    return replace(plan_set(stored, wanted), copied_from=origin, relies_on=noted)


def _only_source(stored: Stored, app_id: str) -> str | None:
    sources = {key.source for key in stored.of(app_id).offsets}
    return None if len(sources) > 1 else next(iter(sources), DEFAULT_SOURCE)


def _id_on_broker(options: argparse.Namespace, kafka: Mapping[str, str]) -> str:
    view = brokers.ask(kafka, [options.topic])
    if options.topic not in view.topics:
        raise RecoveryError(f"topic {options.topic} does not exist at {kafka[kafka_options.SERVERS]}")
    log = view.logs.get((options.topic, options.partition))
    if log is None:
        raise RecoveryError(f"topic {options.topic} has no partition {options.partition}")
    if not log.start <= options.offset <= log.end:
        raise RecoveryError(
            f"{options.topic}-{options.partition} holds offsets {log.start} to {log.end}; "
            f"{options.offset} is not among them"
        )
    return view.topics[options.topic].topic_id


def _planned_rewind(options: argparse.Namespace, opened: OffsetsTable) -> ManualChange:
    if options.app_id is None and not options.restore:
        raise UsageError("give --app-id (the rows of every appId go back together with --restore only)")
    entries, now = opened.entries(), opened.stored()
    if not now.offsets and not now.batches:
        raise RecoveryError(
            "the table holds no offsets of sparkonce: name the one that does (option offsetStore of the pipeline). "
            "Rows whose offsets live elsewhere cannot go back together with them"
        )
    if options.app_id is not None and not (now.of(options.app_id).offsets or now.of(options.app_id).batches):
        raise RecoveryError(f"the table has no offsets of appId {options.app_id}")
    version = options.to_version
    if options.to_timestamp is not None:
        version = version_at(entries, options.to_timestamp)
    elif options.batches is not None:
        version = version_before_batches(entries, _one_app(options.app_id, now), options.batches)
    if version >= opened.version:
        raise RecoveryError(f"version {version} is not older than the table, which is at version {opened.version}")
    return plan_rewind(now, opened.stored(version), entries, app_id=options.app_id, restore=options.restore)


def _planned_copy(options: argparse.Namespace, opened: OffsetsTable) -> ManualChange:
    clone = next((entry.clone for entry in opened.entries() if entry.clone is not None), None)
    location = options.source_table or (clone.location if clone is not None else None)
    version = options.from_version
    if version is None and clone is not None:
        version = clone.version
    if location is None or version is None:
        raise RecoveryError(
            f"the log of {opened.location} does not say which version of which table it is a clone of: give --from and "
            "--from-version"
        )
    source = CloneSource(f"delta.`{location}`", version)
    stored = stored_in(source, opened.storage_options)
    if stored is None:
        raise RecoveryError(
            f"{source} cannot be read. If the table has moved, name it with --from; if that version is gone, set each "
            "offset with `sparkonce offsets set`"
        )
    if options.app_id is not None:
        stored = stored.of(options.app_id)
    check_not_outdated(stored, str(source))
    return plan_copy(opened.stored(), stored, str(source))


_PLANS = {"set": _planned_set, "rewind": _planned_rewind, "copy": _planned_copy}


def _one_app(app_id: str | None, now: Stored) -> str:
    if app_id is not None:
        return app_id
    known = sorted({key.app_id for key in now.batches})
    if len(known) != 1:
        raise UsageError(f"--batches counts the batches of one application: give --app-id ({', '.join(known)})")
    return known[0]


def _carry_out(options: argparse.Namespace, opened: OffsetsTable, change: ManualChange) -> int:
    if options.if_version is not None:
        _check_unmoved(opened, options.if_version)
    check_not_outdated(opened.stored(), str(opened.location), change)
    if not options.despite_unconfirmed:
        check_settled(opened.stored(), change)
    print(f"table {opened.location}, version {opened.version}")
    if change.copied_from is not None:
        print(f"  from {change.copied_from}")
    rows_go = False
    if change.kind is ChangeKind.RESTORE:
        rows_go = _print_undone(opened, change)
    elif not change.moves:
        print("every offset stands there already: nothing to change")
        return 0
    for move in change.moves:
        print(f"  {describe(move.key)}: {'not stored' if move.before is None else move.before} -> {move.after}")
        theirs = options.action == "set" and change.copied_from is not None
        print(f"      {consequence(move, restored=rows_go, written_by_others=theirs)}")
    for batch in change.batches:
        before, after = ("none" if each == NOTHING_KEPT else each for each in (batch.before, batch.after))
        print(f"  query {batch.key.query_id} (appId {batch.key.app_id}): last batch {before} -> {after}")
    if not options.apply:
        print(f"Nothing was changed. To change it, repeat with --apply --if-version {opened.version}")
        return 0
    version = opened.apply(change)
    print(f"changed, in version {version}")
    for app_id in sorted(change.app_ids):
        print(_what_follows(change, app_id, opened.location))
    return 0


def _what_follows(change: ManualChange, app_id: str, location: Location) -> str:
    """Describe how queries of an application continue after a change."""
    anew = f"a new checkpointLocation, and offsetStore=delta:{location} and appId={app_id} on the source"
    if change.kind is ChangeKind.COPY:
        return (
            f"A query of appId {app_id} can now write to {location}: with its checkpoint, or with {anew}. What runs on "
            "other tables is not affected. sparkonce audit says proven again after the first batch here"
        )
    stops = f"A query of appId {app_id} that still runs on this table stops at its next batch"
    if change.kind is ChangeKind.RESTORE:
        return (
            f"{stops}. Start it from the checkpoint that goes with version {change.to_version}, if you have that (a "
            f"query with state has to); else with {anew}"
        )
    return f"{stops}, and so does one that goes on from its checkpoint. Start it with {anew}"


def _check_unmoved(opened: OffsetsTable, version: int) -> None:
    now, then = opened.stored(), opened.stored(version)
    if (now.offsets, now.batches) != (then.offsets, then.batches):
        raise RecoveryError(
            f"offsets moved between version {version} and version {opened.version} of {opened.location}, so nothing "
            "was changed: somebody else writes there. Stop every driver of these applications, look again, and repeat"
        )


def _print_undone(opened: OffsetsTable, change: ManualChange) -> bool:
    """Describe what a restore reverts; return whether rows are removed with the offsets."""
    assert change.to_version is not None
    undone = [entry for entry in opened.entries() if entry.version > change.to_version]
    ours = sum(entry.batch is not None for entry in undone)
    others = sorted({entry.name or "unknown" for entry in undone if entry.batch is None})
    commits, batches = counted(len(undone), "commit"), counted(ours, "batch")
    print(f"  the rows go back to version {change.to_version}: {commits} undone, {batches} among them")
    offsets_only = ours > 0 and not any(entry.batch and Writes.ROWS in entry.batch.writes for entry in undone)
    if offsets_only:
        print("      none of them wrote rows: this table holds offsets only, and the rows, which are elsewhere, stay")
    if others:
        print(f"      the others are: {', '.join(others)}; what they wrote or removed is undone too")
    return not offsets_only


def _broker_view(options: argparse.Namespace, stored: Stored) -> BrokerView | None:
    kafka = kafka_options.settings_from(options)
    if not kafka:
        return None
    partitions = [key.partition for key in stored.offsets]
    return brokers.ask(
        kafka,
        {tp.topic for tp in partitions if tp.topic},
        {tp.topic_id for tp in partitions if not tp.topic},
    )

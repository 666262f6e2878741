"""What a cell has left when its last run is over, and the verdict on it.

Topics, transactions and groups are asked for while the broker still serves, which may be the cell's own; the table is
read when the verdict is given.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sparkonce.jobs.lab.verify.cells import Result
from sparkonce.jobs.lab.verify.judge import Verdict, judge, judge_copies, judge_dead_letters, read_database, read_rows
from sparkonce.jobs.lab.verify.pipelines import Pipeline
from sparkonce.jobs.lab.verify.records import Delivered, Record, read_delivered, read_topic
from sparkonce.jobs.lab.verify.transactions import held_up, lags, open_transactions


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the broker returned."""

    in_topic: tuple[Record, ...] = ()
    delivered: tuple[Delivered, ...] = ()
    """What the pipeline has sent to a topic, if it sends."""
    left_behind: tuple[str, ...] = ()
    """What must not be left, in words: open transactions, and committed offsets that are not the ends."""


def gather(pipeline: Pipeline) -> Evidence:
    """Ask the broker.

    Raises:
        RecordsError: if it returns an error.
    """
    servers, output = pipeline.bootstrap_servers, pipeline.output_topic
    in_topic = tuple(read_topic(servers, pipeline.topic))
    if output is None:
        return Evidence(in_topic)
    left = [f"transaction left behind: {each}" for each in open_transactions(servers, pipeline.app_id)]
    left += [f"readers are held up: {each}" for each in held_up(servers, [output])]
    if Result(pipeline.result) is Result.TOPIC:
        left += [f"group {pipeline.app_id} lags: {each}" for each in lags(servers, pipeline.app_id, pipeline.topic)]
    return Evidence(in_topic, tuple(read_delivered(servers, output)), tuple(left))


def verdict(pipeline: Pipeline, acknowledged: Sequence[tuple[bytes, bytes]], evidence: Evidence) -> Verdict:
    """Hold what there is against what was acknowledged.

    Raises:
        DeltaError, OSError, sqlite3.Error: if the table cannot be read.
    """
    result = Result(pipeline.result)
    if result is Result.TOPIC:
        return judge_copies(acknowledged, evidence.in_topic, evidence.delivered)
    if result is Result.FOREACH_BATCH:
        return judge(acknowledged, evidence.in_topic, read_database(pipeline.database))
    rows = read_rows(pipeline.table, merged=result is Result.MERGE)
    if result is Result.DEAD_LETTERS:
        return judge_dead_letters(acknowledged, evidence.in_topic, rows, evidence.delivered, pipeline.topic)
    return judge(acknowledged, evidence.in_topic, rows)

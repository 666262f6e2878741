"""``python -m lab.verify``: run the crash matrix and the cells of other dimensions, or some of them, and judge.

Those set checkpoints back, or inject faults into a Spark cluster (``--cluster``, ``--master``), on which the crash
matrix runs too.

One line for each cell as it is judged (a progress bar on a terminal), the wrong ones explained, and a last line
``RESULT cells=… lost=… duplicated=… wrong=…``: lost and duplicated count exactly-once cells' records, wrong counts
cells that did not show what they must. Exit code: 0 if all three are 0, 1 if not or if a result file could not be
written, 2 if the command line cannot be used, no cell matches it, or cells could not be run for want of software
(some results need delta-spark's jars; ``--without-merge`` does without).
"""

from __future__ import annotations

import argparse
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from enum import Enum
from itertools import chain
from typing import TypeVar

from lab.crash_plans import POINTS
from lab.peers import jvm_session
from lab.spark_process import SessionError
from lab.standalone import StandaloneCluster, StandaloneError, check_master
from lab.store.stores import KINDS, LOCAL, LOCAL_KIND, Store, open_store
from lab.verify.brokers import Kafka, open_kafka
from lab.verify.cells import BY_DELTA_SPARK, Cell, Fate, Features, Kind, RecordPath, Result, Shared, Shows
from lab.verify.cluster.cells import ClusterCell, Fault, all_faults, quick_faults
from lab.verify.cluster.cells import must_show as shown_on_a_cluster
from lab.verify.cluster.engine import ClusterEngine
from lab.verify.cluster.faults import OF_OUR_CLUSTER
from lab.verify.engine import ON_A_CLUSTER, RETRYING_ON_A_CLUSTER, Engine, merge_session
from lab.verify.matrix import full, must_show
from lab.verify.pairwise import pairwise, quick
from lab.verify.results import AnyOutcome, is_good, result_line, write_results
from lab.verify.setback.cells import (
    SINKS_BY_DELTA_SPARK,
    Query,
    SetBack,
    SetBackCell,
    Sink,
    StateStore,
    all_setbacks,
    pairwise_setbacks,
    quick_setbacks,
)
from lab.verify.setback.engine import SetBackEngine
from lab.verify.show import open_show
from lab.verify.shows import engine as shows_engine
from lab.verify.shows.cells import Show, ShowCell, cells_of
from sparkonce.exactly_once.guarantee import Guarantee
from sparkonce.jobs.shared.arguments import empty_folder, result_file, working_folder
from sparkonce.jobs.shared.command_line import run_module
from sparkonce.jobs.shared.jars import PeerMissingError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    size = parser.add_mutually_exclusive_group()
    size.add_argument(
        "--quick", action="store_true", help="few cells: every point with what it can show, every two other values"
    )
    size.add_argument("--pairs", action="store_true", help="cells in which every two values are together that can be")
    size.add_argument(
        "--show", choices=_names(Show), help="these cells beside Spark's own source and sink, instead of the matrix"
    )
    parser.add_argument("--part", type=_part, metavar="N/OF", help="every OF-th of these cells, from the Nth on: 2/4")
    parser.add_argument("--pauses", type=int, default=6, help="of each cell with two drivers (default: 6)")
    parser.add_argument("--seed", type=int, default=0, help="of choices, and of the moments of pauses (default: 0)")
    _choice(parser, "--guarantee", _names(Guarantee))
    _choice(parser, "--point", [point.value for point in POINTS])
    _choice(parser, "--kind", _names(Kind))
    _choice(parser, "--result", [*_names(Result), *(name for name in _names(Sink) if name not in _names(Result))])
    _choice(parser, "--path", _names(RecordPath))
    _choice(parser, "--features", [ALL, *_names(Features)], "only cells whose table has these features")
    _choice(parser, "--shared", [ALL, *_names(Shared)], "only cells of a query with several tables that hit this one")
    fates = [NONE, ALL, *_names(Fate)]
    _choice(
        parser, "--fate", fates, "only cells of an ingestion one of whose tables has met this, or that has met none"
    )
    _choice(parser, "--setback", [ALL, *_names(SetBack)], "only cells whose checkpoint is set back, in these ways")
    _choice(parser, "--query", _names(Query), "of these cells, those with these queries")
    _choice(parser, "--state", _names(StateStore), "of these cells, those with these state stores")
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--cluster", action="store_true", help="on a standalone cluster, which is started, with the faults of one"
    )
    where.add_argument(
        "--master",
        metavar="URL",
        type=spark_master,
        help="on the standalone cluster at spark://HOST:PORT, whose processes are on this machine, with 16 cores; with "
        "the faults that are not of the cluster itself",
    )
    _choice(parser, "--fault", [ALL, *_names(Fault)], "only cells with these faults of a cluster")
    parser.add_argument("--cell", action="append", metavar="NAME", help="this cell; may be given several times")
    parser.add_argument(
        "--list", action="store_true", help="print each cell's name and what it must show, and run none"
    )
    parser.add_argument(
        "--kafka", default="embedded", help="embedded (default), real (Apache Kafka from Maven) or host:port"
    )
    parser.add_argument(
        "--store",
        default=LOCAL_KIND,
        choices=KINDS,
        help="where tables and checkpoints are: local (default), s3 (versitygw, a server that Go builds once) or moto "
        "(moto's S3 server); on S3 no checkpoints are set back",
    )
    parser.add_argument(
        "--without-merge",
        action="store_true",
        help="leave out what delta-spark or Spark's own connector writes, and tables that delta-spark makes, which "
        "needs their jars",
    )
    parser.add_argument("--report", type=result_file, metavar="FILE", help="write an HTML page there")
    parser.add_argument("--json", type=result_file, metavar="FILE", help="write the outcomes there")
    parser.add_argument(
        "--keep",
        type=empty_folder,
        metavar="FOLDER",
        help="keep tables, checkpoints and logs there, and what `sparkonce ui FOLDER` shows while it runs",
    )


ALL, NONE = "all", "none"


def spark_master(text: str) -> str:
    """Return the address of a standalone cluster's Master.

    Raises:
        argparse.ArgumentTypeError: for anything else.
    """
    if re.fullmatch(r"spark://[^/\s:,]+:\d+(,[^/\s:,]+:\d+)*", text) is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not the address of a standalone cluster: spark://HOST:PORT")
    return text


def _part(text: str) -> slice:
    """Return which of the cells are a part such as 2/4. Raises argparse.ArgumentTypeError for anything else."""
    found = re.fullmatch(r"([1-9]\d*)/([1-9]\d*)", text)
    if found is None or int(found[1]) > int(found[2]):
        raise argparse.ArgumentTypeError(f"{text!r} is no part: write N/OF, such as 2/4 for the second of four")
    return slice(int(found[1]) - 1, None, int(found[2]))


def _names(kind: type[Enum]) -> list[str]:
    return [_name(member) for member in kind]


def _name(member: Enum) -> str:
    return str(member.value).replace(" ", "-")


def _choice(parser: argparse.ArgumentParser, option: str, names: Sequence[str], what: str = "only these") -> None:
    parser.add_argument(option, action="append", choices=names, metavar="NAME", help=f"{what}: {', '.join(names)}")


AnyChosen = Cell | SetBackCell | ClusterCell | ShowCell
CellT = TypeVar("CellT", Cell, SetBackCell, ClusterCell, ShowCell)


def choose(options: argparse.Namespace) -> list[AnyChosen]:
    """Return the cells that the options name.

    Raises:
        ValueError: for a cell's name that does not exist, or if no cell matches.
    """
    cells = list[AnyChosen](_shown(options)) if options.show else _of_dimensions(options)
    if options.without_merge:
        cells = [cell for cell in cells if not needs_delta_spark(cell)]
    if options.cell:
        known = {cell.name: cell for cell in cells}
        unknown = [name for name in options.cell if name not in known]
        if unknown:
            raise ValueError(f"no cell is named {unknown[0]}; --list names all")
        cells = [known[name] for name in dict.fromkeys(options.cell)]
    elif options.quick or options.pairs:
        some = quick if options.quick else pairwise
        crashes, faults = _of(cells, Cell), _of(cells, ClusterCell)
        set_back = quick_setbacks() if options.quick else pairwise_setbacks()
        chosen = {*some(crashes, options.seed), *set_back, *quick_faults(faults, options.seed)}
        cells = [cell for cell in cells if cell in chosen]
    cells = cells[options.part] if options.part else cells
    if not cells:
        raise ValueError("no cell matches these options; --list without them names all")
    return cells


def _shown(options: argparse.Namespace) -> tuple[ShowCell, ...]:
    """Return the cells of a show."""
    crashes = (options.guarantee, options.point, options.kind, options.result, options.path)
    others = (options.setback, options.query, options.state, options.fault, options.cluster, options.master)
    if any((*crashes, options.features, options.shared, options.fate, *others)):
        raise ValueError("--show has cells of its own, among which --cell chooses: leave out options of other cells")
    if options.pauses < 1:
        raise ValueError(f"--pauses {options.pauses}: expected at least 1")
    return cells_of(Show(options.show))


def _of_dimensions(options: argparse.Namespace) -> list[AnyChosen]:
    """Return the cells of the matrix and of the other dimensions."""
    of_setbacks = options.setback or options.query or options.state
    of_tables = options.features or options.shared or options.fate
    of_crashes = options.point or options.kind or of_tables
    on_a_cluster = options.cluster or options.master
    elsewhere = on_a_cluster or options.store != LOCAL_KIND
    if options.fault and not on_a_cluster:
        raise ValueError("--fault needs --cluster or --master")
    if of_setbacks and options.store != LOCAL_KIND:
        raise ValueError(f"--store {options.store}: checkpoints are set back in local folders only")
    crashes = [] if of_setbacks or options.fault else _crashes(options)
    setbacks = (
        [] if of_crashes or options.fault or options.path or (elsewhere and not of_setbacks) else _setbacks(options)
    )
    faults = [] if of_setbacks or options.kind or of_tables or not on_a_cluster else _faults(options)
    return [*crashes, *setbacks, *faults]


def _crashes(options: argparse.Namespace) -> list[Cell]:
    wanted = ("guarantee", "point", "kind", "result", "path")
    cells = [cell for cell in full() if all(_wants(options, name, getattr(cell, name)) for name in wanted)]
    if options.store != LOCAL_KIND:  # there tables are written at once: how far the others come is chance
        cells = [cell for cell in cells if cell.shared is None or cell.guarantee is Guarantee.EXACTLY_ONCE]
    for name in ("features", "shared", "fate"):
        if NONE in (getattr(options, name) or ()):
            cells = [cell for cell in cells if getattr(cell, name) is None]
        elif getattr(options, name):
            cells = [cell for cell in cells if (each := getattr(cell, name)) and _wants(options, name, each)]
    return cells


def _faults(options: argparse.Namespace) -> list[ClusterCell]:
    wanted = ("fault", "guarantee", "point", "result", "path")
    return [cell for cell in all_faults() if all(_wants(options, name, getattr(cell, name)) for name in wanted)]


def _of(cells: Iterable[AnyChosen], kind: type[CellT]) -> list[CellT]:
    return [cell for cell in cells if isinstance(cell, kind)]


def _setbacks(options: argparse.Namespace) -> list[SetBackCell]:
    """Cells of other sinks run only when they are named."""
    return [
        cell
        for cell in all_setbacks()
        if not cell.compares_only or _name(cell.sink) in (options.result or ()) or cell.name in (options.cell or ())
        if _wants(options, "guarantee", cell.guarantee)
        if _wants(options, "setback", cell.setback)
        if _wants(options, "query", cell.query)
        if _wants(options, "state", cell.state)
        if _wants(options, "result", cell.sink)
    ]


def _wants(options: argparse.Namespace, option: str, value: Enum) -> bool:
    names = getattr(options, option)
    return not names or ALL in names or _name(value) in names


def needs_delta_spark(cell: AnyChosen) -> bool:
    """Whether a cell needs delta-spark's jars, or those of Spark's own connector."""
    if isinstance(cell, ShowCell):
        return cell.by_spark
    if isinstance(cell, Cell) and cell.features:
        return True
    return cell.sink in SINKS_BY_DELTA_SPARK if isinstance(cell, SetBackCell) else cell.result in BY_DELTA_SPARK


def shows(cell: AnyChosen) -> Shows:
    """Return what a cell's result must show."""
    if isinstance(cell, ClusterCell):
        return shown_on_a_cluster(cell)
    if isinstance(cell, ShowCell):
        return cell.must_show
    return must_show(cell) if isinstance(cell, Cell) else Shows.NEITHER


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    try:
        cells = choose(options)
    except ValueError as error:
        print(f"lab.verify: {error}", file=sys.stderr)
        return 2
    if options.list:
        print(
            "# cell (for --cell), and what its result must show: neither (a loss nor duplicates), loss, duplicates, …"
        )
        for cell in cells:
            print(f"{cell.name}  {shows(cell).value}")
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # to end started processes
    try:
        if options.master is not None:
            check_master(options.master)
        with open_kafka(options.kafka) as kafka, open_store(options.store) as store:
            return verify(cells, kafka, options, store)
    except (ValueError, PeerMissingError, SessionError, StandaloneError) as error:
        print(f"lab.verify: {error}", file=sys.stderr)
        return 2


def verify(cells: Sequence[AnyChosen], kafka: Kafka, options: argparse.Namespace, store: Store = LOCAL) -> int:
    """Run cells on a Kafka and a store, show them, write the requested files, and return the exit code."""
    began_s = time.monotonic()
    conf, missing = _settings(cells, store, "local:" if options.cluster or options.master else "")
    reasons = {cell: _cannot_run(cell, kafka, missing, options.master) for cell in cells}
    possible = [cell for cell in cells if reasons[cell] is None]
    _tell_left_out(reasons)
    outcomes: list[AnyOutcome] = []
    with ExitStack() as stack:
        folder = stack.enter_context(working_folder(options.keep, "verify-"))
        show = stack.enter_context(open_show(len(possible)))
        engine = Engine(
            kafka, folder, conf, store=store, keep=options.keep is not None, tell=show.say, progress=_tell_progress
        )
        cluster = stack.enter_context(StandaloneCluster(folder / "cluster")) if options.cluster else None
        if (master := options.master if cluster is None else cluster.url) is not None:
            engine.conf = {**conf, "spark.master": master, **ON_A_CLUSTER}
            engine.retrying = RETRYING_ON_A_CLUSTER
        stack.callback(engine.close)
        crashes = engine.run(_of(possible, Cell))
        setbacks = SetBackEngine(engine).run(_of(possible, SetBackCell))
        faults = ClusterEngine(engine, cluster).run(_of(possible, ClusterCell))
        beside = shows_engine.run(_of(possible, ShowCell), engine, options.pauses, options.seed)
        for outcome in chain[AnyOutcome](crashes, setbacks, faults, beside):
            outcomes.append(outcome)
            show.outcome(outcome)
    result = result_line(outcomes)
    for kind, spent in engine.spent.items():
        print(f"{kind}: {spent.starts} starts of Spark, {spent.cpu_s:.0f} s of CPU time in its processes")
    print(f"{len(outcomes)} cells in {time.monotonic() - began_s:.0f} s")
    print(result, flush=True)
    written = write_results(outcomes, result, options)
    if not is_good(outcomes) or not written:
        return 1
    return 0 if missing is None else 2


def _cannot_run(cell: AnyChosen, kafka: Kafka, no_delta_spark: str | None, master: str | None) -> str | None:
    if master is not None and isinstance(cell, ClusterCell) and cell.fault in OF_OUR_CLUSTER:
        return f"its fault needs a cluster that this command starts (--cluster), not the one at {master}"
    if needs_delta_spark(cell) and no_delta_spark:
        return no_delta_spark
    return kafka.cannot_run(cell) if isinstance(cell, Cell) else None


def _tell_progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _settings(cells: Sequence[AnyChosen], store: Store, scheme: str) -> tuple[dict[str, str], str | None]:
    """Return the session settings of cells and store, and the reason if cells with delta-spark cannot run.

    Jars get the ``scheme`` with which executors find them.
    """
    jars = [f"{scheme}{jar}" for jar in store.jars]
    plain = {**store.session, **({"spark.jars": ",".join(jars)} if jars else {})}
    if not any(needs_delta_spark(cell) for cell in cells):
        return plain, None
    try:
        merging = jvm_session() if any(isinstance(cell, ShowCell) for cell in cells) else merge_session(scheme)
    except PeerMissingError as error:
        return plain, f"jars are missing: {error}; --without-merge does without them"
    return {**plain, **merging, "spark.jars": ",".join([merging["spark.jars"], *jars])}, None


def _tell_left_out(reasons: Mapping[AnyChosen, str | None]) -> None:
    for cell, reason in reasons.items():
        if reason is not None:
            print(f"left out: {cell.name}")
    for reason, number in Counter(reason for reason in reasons.values() if reason is not None).items():
        print(f"left out: {number} cells, because {reason}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status."""
    return run_module("lab.verify", add_arguments, run, arguments)


if __name__ == "__main__":
    sys.exit(main())

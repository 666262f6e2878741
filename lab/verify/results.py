"""The output of `python -m lab.verify`: its last line, its exit code, and the requested files."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from lab.verify.cells import Cell, Outcome, table_words
from lab.verify.cluster.cells import ClusterCell
from lab.verify.matrix import full
from lab.verify.setback.cells import SetBackCell
from lab.verify.shows.cells import ShowCell
from sparkonce.exactly_once.guarantee import Guarantee

AnyOutcome = Outcome[Cell] | Outcome[SetBackCell] | Outcome[ClusterCell] | Outcome[ShowCell]


def result_line(outcomes: Sequence[AnyOutcome]) -> str:
    """Return the last line."""
    strict = _strict(outcomes)
    lost, duplicated = sum(each.lost for each in strict), sum(each.duplicated for each in strict)
    wrong = sum(outcome.wrong is not None for outcome in outcomes)
    return f"RESULT cells={len(outcomes)} lost={lost} duplicated={duplicated} wrong={wrong}"


def _strict(outcomes: Sequence[AnyOutcome]) -> list[AnyOutcome]:
    return [each for each in outcomes if each.cell.guarantee is Guarantee.EXACTLY_ONCE and not each.to_compare]


def is_good(outcomes: Sequence[AnyOutcome]) -> bool:
    """Whether there are outcomes and none is wrong."""
    strict = _strict(outcomes)
    return (
        bool(outcomes)
        and not any(each.wrong for each in outcomes)
        and not any(each.lost or each.duplicated for each in strict)
    )


def to_json(outcome: AnyOutcome) -> dict[str, object]:
    """Return an outcome as plain JSON values, with the cell's name."""
    document = asdict(outcome)
    document["cell"] = {"name": outcome.cell.name, **document["cell"]}
    plain: dict[str, object] = json.loads(json.dumps(document, default=lambda value: value.value))
    return plain


def write_results(outcomes: Sequence[AnyOutcome], result: str, options: argparse.Namespace) -> bool:
    """Write the requested files; report each that cannot be written, and return whether all could."""
    texts: dict[Path, str] = {}
    if options.json is not None:
        texts[options.json] = json.dumps([to_json(outcome) for outcome in outcomes], indent=1)
    if options.report is not None:
        from lab.verify.report import page

        crashes = [each for each in outcomes if isinstance(each.cell, Cell)]
        setbacks = [each for each in outcomes if isinstance(each.cell, SetBackCell)]
        faults = [each for each in outcomes if isinstance(each.cell, ClusterCell)]
        beside = [each for each in outcomes if isinstance(each.cell, ShowCell)]
        possible = [cell for cell in full() if not table_words(cell)]  # the others would be half of the picture
        texts[options.report] = page(crashes, result, possible, _made(), setbacks, faults, beside)
    good = True
    for path, text in texts.items():
        try:
            path.write_text(text)
        except OSError as error:
            print(f"lab.verify: {path} cannot be written: {error.strerror}", file=sys.stderr)
            good = False
    return good


def _made() -> str:
    now = datetime.now(UTC).isoformat(" ", "seconds")
    return f"{shlex.join(['python', '-m', 'lab.verify', *sys.argv[1:]])}, which ended at {now}"

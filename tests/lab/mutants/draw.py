"""Draw mutants of the product's core with Cosmic Ray's operators, the same ones for the same seed.

    pip install cosmic-ray; python -m tests.lab.mutants.draw >tests/lab/mutants/mutants.tsv

A mutant is a line of a file and what stands there instead, so that the list outlives edits elsewhere in the file.
"""

from __future__ import annotations

import random
import re
from pathlib import Path

import parso
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

PROJECT = Path(__file__).resolve().parents[3]
SEED = 1
AREAS = {
    "exactly_once": 9,
    "offset_store": 9,
    "connectors/sinks": 9,
    "connectors/kafka_source/plan*.py": 8,
    "connectors/delta_sink": 9,
    "broker_lite/log": 8,
    "broker_lite/coordinators": 8,
}
"""How many mutants of each area."""
OPERATORS = re.compile(
    r"core/(ReplaceComparisonOperator_(?!Is)\w+_(?!Is)\w+|ReplaceBinaryOperator_(Add_Sub|Sub_Add|Mul_Add)"
    r"|ReplaceAndWithOr|ReplaceOrWithAnd|AddNot|ReplaceTrueWithFalse|ReplaceFalseWithTrue|NumberReplacer"
    r"|ReplaceBreakWithContinue|ReplaceContinueWithBreak|ZeroIterationForLoop)"
)
"""Without those that change nothing, such as `==` to `is` of an enumeration, or `|` in annotations."""


SAME = re.compile(r"@dataclass|field\(|repr=|, \*,|Final|__all__")
"""Lines that decide nothing when the product runs."""


def places_of(source: str) -> list[tuple[str, int]]:
    """Return each operator that changes the source, with the number of each place that it changes."""
    nodes, edge = [], [parso.parse(source)]
    while edge:
        node = edge.pop()
        nodes.append(node)
        edge += getattr(node, "children", [])
    found = []
    for name in sorted(filter(OPERATORS.fullmatch, operator_names())):
        operator = get_operator(name)()
        found += [
            (name, number) for number in range(sum(len(list(operator.mutation_positions(each))) for each in nodes))
        ]
    return found


def mutant(source: str, name: str, number: int) -> tuple[int, str, str] | None:
    """Return number, text and replacement of the line that is changed, if it is one and decides something."""
    before, after = source.splitlines(), (mutate_code(source, get_operator(name)(), number) or source).splitlines()
    changed = [place for place, (old, new) in enumerate(zip(before, after, strict=False)) if old != new]
    if len(before) != len(after) or len(changed) != 1 or SAME.search(before[changed[0]]):
        return None
    return changed[0] + 1, before[changed[0]], after[changed[0]]


def main() -> None:
    """Print the list."""
    chance = random.Random(SEED)
    print("file\tline\tis\tbecomes")
    for area, count in AREAS.items():
        files = sorted((PROJECT / area).rglob("*.py") if "*" not in area else PROJECT.glob(area))
        weights = [path.read_text().count("\n") for path in files]
        drawn = set[tuple[str, int, str, str]]()
        while len(drawn) < count:
            (path,) = chance.choices(files, weights)
            source = path.read_text()
            if (places := places_of(source)) and (found := mutant(source, *chance.choice(places))):
                drawn.add((path.relative_to(PROJECT).as_posix(), *found))
        for each in sorted(drawn):
            print(*each, sep="\t")


if __name__ == "__main__":
    main()

"""Whether one JSON Schema accepts all documents that another accepts; in doubt the answer is no.

1. A reader accepts all documents of a writer if each of its units follows from the writer's conjuncts together. A
   rule must hold for every document; that is why each names its assumptions.
2. A unit about kinds of values that the writer never writes follows from that.
3. If a unit does not follow, it may do so for each alternative of the writer's ``anyOf``, or for each kind of values.
4. A pair that is already being compared, for an enclosing value, counts as compatible: by induction over the size of
   documents, since this value is smaller. A pair of the same value does not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, reduce
from itertools import combinations
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sparkonce.registry_lite.compatibility.json_form import (
    KINDS,
    NUMBERS,
    Bound,
    Conjunct,
    Items,
    Properties,
    Subschema,
    kinds_of,
    same,
)

MAX_COMPARISONS = 50_000
"""The most pairs of parts compared: nested alternatives would otherwise take exponential time."""
_SPEAKS_OF = {
    **dict.fromkeys(("minimum", "maximum", "multipleOf"), NUMBERS),
    **dict.fromkeys(("minLength", "maxLength", "pattern"), frozenset({"string"})),
    **dict.fromkeys(("minItems", "maxItems", "uniqueItems", "items", "contains"), frozenset({"array"})),
    **dict.fromkeys(("minProperties", "maxProperties", "required", "properties"), frozenset({"object"})),
    **dict.fromkeys(("propertyNames", "dependentSchemas"), frozenset({"object"})),
}
_ONLY: dict[str, Conjunct] = {kind: {"type": frozenset({kind})} for kind in sorted(KINDS)}
_NAME = {"type": "string"}
_PLAIN_PATTERN = re.compile(
    r"(?:[^\\\[\](){}]|\\[bBdDwWsS\W]|\(\?:|\((?!\?)|\)|\{\d+(?:,\d*)?\}|\[\^?(?:[^\\\[\]]|\\[dDwWsS\W])+\])*",
    re.ASCII,
)
"""Patterns that RE2, Python and JavaScript interpret equally for names of printable ASCII characters."""

_UNKNOWN = {"$ref": "REFERENCE_UNKNOWN", "$schema": "DRAFT_NOT_COMPARED"}

Unit = tuple[str, Any]
Problems = list[str]


class TooComplexError(Exception):
    """More than `MAX_COMPARISONS` pairs would have to be compared."""


class Comparison:
    """Finds the places where a reader rejects documents of a writer."""

    def __init__(self) -> None:
        self._left = MAX_COMPARISONS
        self._depth = 0
        """How many objects and arrays enclose the current value."""
        self._open: dict[object, int] = {}
        """The pairs being compared, and their depths."""
        self._rules: dict[str, Callable[[Any, list[Conjunct], str], Problems]] = {
            "type": self._type,
            "values": self._values,
            "properties": self._properties,
            "required": self._required,
            "propertyNames": self._property_names,
            "dependentSchemas": self._dependent_schemas,
            "items": self._items,
            "contains": self._contains,
            "multipleOf": self._multiple_of,
            "anyOf": self._any_of,
            "exclusive": self._exclusive,
            "if": self._if,
            "not": self._not,
        }

    def takes(self, reader: Subschema, writers: Sequence[Subschema], at: str) -> Problems:
        """Return why a reader rejects values that all of the writers accept.

        Raises:
            TooComplexError: if there are too many comparisons.
        """
        if any(same(reader, writer) for writer in writers):
            return []
        return self._follow(_units(_conjuncts(reader)), _conjuncts(*writers), at)

    def _takes_inside(self, reader: Subschema, writers: Sequence[Subschema], at: str) -> Problems:
        """Return the same for values inside the current one."""
        self._depth += 1
        found = self.takes(reader, writers, at)
        self._depth -= 1
        return found

    def _follow(self, units: Sequence[Unit], w: list[Conjunct], at: str) -> Problems:
        """Return the units that do not hold for all values that satisfy the writer's conjuncts."""
        self._spend()
        key = (tuple((name, id(unit)) for name, unit in units), frozenset(map(id, w)))
        kinds = _kinds(w)
        if not kinds or self._open.get(key, self._depth) < self._depth:
            return []
        if key in self._open:
            return [f"REFERENCE_UNKNOWN at {at}"]
        self._open[key] = self._depth
        failing, problems = [], []
        for name, unit in units:
            if _SPEAKS_OF.get(name, KINDS) & kinds and (found := self._holds(name, unit, w, at)):
                failing.append((name, unit))
                problems += found
        if failing:
            problems = self._split(failing, w, at, problems)
        del self._open[key]
        return problems

    def _split(self, units: Sequence[Unit], w: list[Conjunct], at: str, problems: Problems) -> Problems:
        """Return the problems for some alternative of the writer."""
        group = next((each for each in w if "anyOf" in each), None)
        if group:
            others = [each for each in w if each is not group]
            cases = ([*others, *_conjuncts(branch)] for branch in group["anyOf"])
        elif len(_kinds(w)) > 1 and any(name == "anyOf" for name, _ in units):
            cases = ([*w, _ONLY[kind]] for kind in sorted(_kinds(w)))
        else:
            return problems
        return next(filter(None, (self._follow(units, case, at) for case in cases)), [])

    def _spend(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise TooComplexError

    def _holds(self, name: str, unit: Any, w: list[Conjunct], at: str) -> Problems:
        if name in self._rules:
            return self._rules[name](unit, w, at)
        theirs = _all(name, w)
        if name.startswith("min"):
            taken, how = any(_least(each) >= _least(unit) for each in theirs), "INCREASED"
        elif name.startswith("max"):
            taken, how = any(_most(each) <= _most(unit) for each in theirs), "DECREASED"
        else:
            taken, how = any(same(unit, each) for each in theirs), "CHANGED"
        said = _UNKNOWN.get(name, f"{name.upper()}_{how if theirs else 'ADDED'}")
        return [] if taken else [f"{said} at {at}"]

    def _type(self, unit: frozenset[str], w: list[Conjunct], at: str) -> Problems:
        kinds = _kinds(w)
        return [] if kinds <= unit else [f"{'TYPE_NARROWED' if unit < kinds else 'TYPE_CHANGED'} at {at}"]

    def _values(self, unit: dict[Any, Any], w: list[Conjunct], at: str) -> Problems:
        theirs = _values(w)
        taken = theirs is not None and theirs <= unit.keys()
        return [] if taken else [f"ENUM_ARRAY_NARROWED at {at}"]

    def _multiple_of(self, unit: Subschema, w: list[Conjunct], at: str) -> Problems:
        """Compare divisors: multiples of 6 are multiples of 3; fractions only count if they are equal."""
        ours, theirs = unit.part, [each.part for each in _all("multipleOf", w)]
        whole = isinstance(ours, int)
        if any(ours == each or (whole and isinstance(each, int) and each % ours == 0) for each in theirs):
            return []
        return [f"MULTIPLEOF_CHANGED at {at}"]

    # -- objects

    def _required(self, unit: frozenset[str], w: list[Conjunct], at: str) -> Problems:
        """Compare without defaults: validators do not fill them in."""
        missing = unit.difference(*_all("required", w))
        return [f"REQUIRED_ATTRIBUTE_ADDED at {at}/properties/{name}" for name in sorted(missing)]

    def _properties(self, unit: Properties, w: list[Conjunct], at: str) -> Problems:
        """Compare the listed names, then other names by pattern, then those that match no pattern."""
        theirs: list[Properties] = _all("properties", w)
        problems: Problems = []
        for name in sorted(unit.listed.keys() | {name for each in theirs for name in each.listed}):
            problems += self._name(name, unit, theirs, f"{at}/properties/{name}")
        for pattern, part in unit.patterns.items():
            place = f"{at}/patternProperties/{pattern}"
            if not self._other_names(part, [_options(pattern, each) for each in theirs], place):
                problems.append(f"PATTERN_PROPERTY_NARROWED at {place}")
        left = [[each for name, each in one.patterns.items() if name not in unit.patterns] for one in theirs]
        options = [[*fitting, one.additional] for fitting, one in zip(left, theirs, strict=True)]
        if not self._other_names(unit.additional, options, at):
            problems.append(f"ADDITIONAL_PROPERTIES_NARROWED at {at}")
        return problems

    def _name(self, name: str, unit: Properties, theirs: Sequence[Properties], at: str) -> Problems:
        """Compare a name's possible schemas with its certain ones; a pattern in both matches in both or in neither."""
        given = [place for each in theirs for place in _surely(name, each)]
        problems: Problems = []
        if name in unit.listed:
            found = self._takes_inside(unit.listed[name], given, at)
            added = not any(name in each.listed for each in theirs)
            problems += [f"PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL at {at}"] if found and added else found
        for pattern, part in unit.patterns.items():
            both = [each.patterns[pattern] for each in theirs if pattern in each.patterns]
            if _fits(pattern, name) is not False and self._takes_inside(part, [*given, *both], at):
                problems.append(f"PATTERN_PROPERTY_NARROWED at {at}")
        if not _listed(name, unit) and self._takes_inside(unit.additional, given, at):
            problems.append(f"PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL at {at}")
        return problems

    def _other_names(self, part: Subschema, options: Iterable[Sequence[Subschema]], at: str) -> bool:
        """Return whether a part accepts every possible schema of the writer for unlisted names."""
        if not self._takes_inside(part, [], at):
            return True
        return any(all(not self._takes_inside(part, [each], at) for each in said) for said in options)

    def _property_names(self, unit: Subschema, w: list[Conjunct], at: str) -> Problems:
        names = Subschema(_NAME, None, unit.documents)
        found = self._takes_inside(unit, [names, *_all("propertyNames", w)], at)
        return [f"PROPERTYNAMES_CHANGED at {at}"] if found else []

    def _dependent_schemas(self, unit: dict[str, Subschema], w: list[Conjunct], at: str) -> Problems:
        """Compare for each name: if it is present, the writer's schema for it holds, too."""
        for name, part in unit.items():
            said = [each[name] for each in _all("dependentSchemas", w) if name in each]
            if self._follow(_units(_conjuncts(part)), [*w, *_conjuncts(*said)], at):
                return [f"DEPENDENCIES_CHANGED at {at}"]
        return []

    # -- arrays

    def _items(self, unit: Items, w: list[Conjunct], at: str) -> Problems:
        """Compare each position of a tuple, then the rest, up to the maximum length of the writer's arrays."""
        theirs: list[Items] = _all("items", w)
        most = min(_all("maxItems", w), default=None)
        problems: Problems = []
        length = max(len(each.prefix) for each in [unit, *theirs])
        for index in range(length + 1):
            given = [each.at(index) for each in theirs]
            if (most is not None and index >= most) or not _kinds(_conjuncts(*given)):
                break
            problems += self._takes_inside(unit.at(index), given, f"{at}/items{f'/{index}' if index < length else ''}")
        return problems

    def _contains(self, unit: tuple[Subschema, int, int | None], w: list[Conjunct], at: str) -> Problems:
        """Compare so that the reader counts all elements that the writer counts; for the maximum, vice versa."""
        part, least, most = unit
        theirs = _all("contains", w)
        enough = least <= 0 or any(a >= least and not self._takes_inside(part, [each], at) for each, a, _ in theirs)
        few = most is None or any(
            z is not None and z <= most and not self._takes_inside(each, [part], at) for each, _, z in theirs
        )
        return [] if enough and few else [f"CONTAINS_CHANGED at {at}"]

    # -- combinations

    def _any_of(self, unit: list[Subschema], w: list[Conjunct], at: str) -> Problems:
        """Check that one branch accepts all. Alternatives of the writer are compared one by one, by `_split`."""
        groups = _all("anyOf", w)
        alike = (group for group in groups if len(group) == len(unit))
        if any(all(map(same, unit, group)) for group in alike):
            return []
        if not groups and any(not self._follow(_units(_conjuncts(branch)), w, at) for branch in unit):
            return []
        return [f"COMBINED_TYPE_SUBSCHEMAS_CHANGED at {at}"]

    def _exclusive(self, unit: list[Subschema], w: list[Conjunct], at: str) -> Problems:
        """Check that no value is in two branches: they are disjoint, or two of the writer's ``oneOf`` contain them."""
        theirs: list[list[Subschema]] = _all("exclusive", w)
        overlapping = [
            (one, other)
            for (one, first), (other, second) in combinations(enumerate(unit), 2)
            if not self._empty([*w, *_conjuncts(first, second)])
        ]
        for group in theirs if overlapping else []:
            within = [{n for n, each in enumerate(group) if not self.takes(each, [branch], at)} for branch in unit]
            overlapping = [
                (one, other)
                for one, other in overlapping
                if not (within[one] and within[other] and len(within[one] | within[other]) > 1)
            ]
        return [f"ONEOF_BRANCHES_OVERLAP at {at}"] if overlapping else []

    def _if(self, unit: tuple[Subschema, Subschema, Subschema], w: list[Conjunct], at: str) -> Problems:
        """Compare ``then`` for values of the reader's ``if``, ``else`` for all, each with the writer's additions.

        The writer adds its ``then`` if its ``if`` takes all of the reader's, and its ``else`` if it is the other way.
        """
        condition, then, otherwise = unit
        given, rest = [*w, *_conjuncts(condition)], [*w]
        for theirs, its_then, its_else in _all("if", w):
            given += [] if self.takes(theirs, [condition], at) else _conjuncts(its_then)
            rest += [] if self.takes(condition, [theirs], at) else _conjuncts(its_else)
        then_units, else_units = (_units(_conjuncts(each)) for each in (then, otherwise))
        found = self._follow(then_units, given, at) or self._follow(else_units, rest, at)
        return [f"IF_CHANGED at {at}"] if found else []

    def _not(self, unit: Subschema, w: list[Conjunct], at: str) -> Problems:
        """Check that the writer excludes the reader's part, or at least never writes it."""
        excluded = any(not self.takes(each, [unit], at) for each in _all("not", w))
        return [] if excluded or self._empty([*w, *_conjuncts(unit)]) else [f"NOT_CHANGED at {at}"]

    def _empty(self, w: list[Conjunct]) -> bool:
        """Return whether certainly no value satisfies all of these conjuncts."""
        self._spend()
        key = ("empty", frozenset(map(id, w)))
        if key in self._open:
            return False
        self._open[key] = self._depth
        kinds = _kinds(w)
        lows, highs = _all("minimum", w), _all("maximum", w)
        if any(low.value > high.value or _touch(low, high) for low in lows for high in highs):
            kinds -= NUMBERS
        if "object" in kinds and self._no_object(w):
            kinds -= {"object"}
        empty = (
            not kinds
            or _values(w) == set()
            or any(not self._follow(_units(_conjuncts(each)), w, "") for each in _all("not", w))
            or any(self._no_branch(each, w) for each in w if "anyOf" in each)
        )
        del self._open[key]
        return empty

    def _no_object(self, w: list[Conjunct]) -> bool:
        """Return whether a required name can have no value."""
        theirs: list[Properties] = _all("properties", w)
        names = sorted(set().union(*_all("required", w)))
        values = (_conjuncts(*(part for each in theirs for part in _surely(name, each))) for name in names)
        self._depth += 1
        nothing = any(self._empty(each) for each in values)
        self._depth -= 1
        return nothing

    def _no_branch(self, group: Conjunct, w: list[Conjunct]) -> bool:
        others = [each for each in w if each is not group]
        return all(self._empty([*others, *_conjuncts(branch)]) for branch in group["anyOf"])


def _touch(low: Bound, high: Bound) -> bool:
    return low.value == high.value and (low.exclusive or high.exclusive)


def _conjuncts(*places: Subschema) -> list[Conjunct]:
    return [each for place in places for each in place.documents.conjuncts(place)]


def _units(conjuncts: Iterable[Conjunct]) -> list[Unit]:
    return [unit for each in conjuncts for unit in each.items()]


def _all(name: str, conjuncts: Iterable[Conjunct]) -> list[Any]:
    return [each[name] for each in conjuncts if name in each]


def _kinds(w: list[Conjunct]) -> frozenset[str]:
    """Return the kinds of the values that may satisfy all of these conjuncts."""
    kinds: frozenset[str] = reduce(frozenset.intersection, _all("type", w), KINDS)
    for values in _all("values", w):
        kinds = kinds.intersection(frozenset().union(*map(kinds_of, values.values())))
    return kinds


def _values(w: list[Conjunct]) -> set[Any] | None:
    """Return the values, in `canonical` form, that are in all lists and of an allowed kind; None without a list."""
    kinds = _kinds(w)
    lists = [{key for key, each in values.items() if kinds_of(each) & kinds} for values in _all("values", w)]
    return set.intersection(*lists) if lists else None


def _least(bound: Any) -> tuple[float, bool]:
    return (bound.value, bound.exclusive) if isinstance(bound, Bound) else (bound, False)


def _most(bound: Any) -> tuple[float, bool]:
    return (bound.value, not bound.exclusive) if isinstance(bound, Bound) else (bound, True)


# -- names of properties


def _surely(name: str, unit: Properties) -> Iterator[Subschema]:
    """Return the schemas that certainly apply to a name."""
    fits = {pattern: _fits(pattern, name) for pattern in unit.patterns}
    if name in unit.listed:
        yield unit.listed[name]
    yield from (unit.patterns[pattern] for pattern, fit in fits.items() if fit)
    if name not in unit.listed and not any(fit is not False for fit in fits.values()):
        yield unit.additional


def _listed(name: str, unit: Properties) -> bool:
    """Return whether ``additionalProperties`` certainly does not apply to a name."""
    return name in unit.listed or any(_fits(pattern, name) for pattern in unit.patterns)


def _options(pattern: str, unit: Properties) -> list[Subschema]:
    """Return the schemas that may apply to an unlisted name that matches a pattern."""
    if pattern in unit.patterns:
        return [unit.patterns[pattern]]
    return [*unit.patterns.values(), unit.additional]


@lru_cache(4096)
def _fits(pattern: str, name: str) -> bool | None:
    """Return whether a name matches a pattern; None if unknown, or not the same for all engines.

    Arrow's regular expressions (RE2) take time linear in the name. Python's could take years for
    ``(a+)+``; nor is their syntax that of JavaScript, which JSON Schema's patterns use.
    """
    if not (name.isascii() and name.isprintable() and _PLAIN_PATTERN.fullmatch(pattern)):
        return None
    try:
        return bool(pc.match_substring_regex(pa.scalar(name), pattern).as_py())
    except pa.ArrowException:
        return None

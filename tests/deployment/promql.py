"""Which series a PromQL expression asks for, and which labels its result has."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import promql_parser
from promql_parser import (
    AggModifierType,
    AggregateExpr,
    BinaryExpr,
    Call,
    LabelModifierType,
    MatchOp,
    MatrixSelector,
    NumberLiteral,
    ParenExpr,
    StringLiteral,
    SubqueryExpr,
    UnaryExpr,
    VectorSelector,
)

OF_PROMETHEUS = frozenset({"instance", "job"})
"""Labels that Prometheus adds to every series."""
SETS = ("and", "or", "unless")

Series = dict[str, list[dict[str, str]]]
"""The labels of all series, by the name of their metric."""


@dataclass(frozen=True)
class Known:
    """The series that exist."""

    series: Series

    def labels_of(self, metric: str) -> frozenset[str]:
        """Return all labels that series of a metric have."""
        assert metric in self.series, f"{metric} is no metric of sparkonce"
        return frozenset().union(*self.series[metric]) | OF_PROMETHEUS

    def check(self, text: str) -> frozenset[str]:
        """Return the labels of the result; fail where a metric, a label or its value does not exist."""
        return self._labels(promql_parser.parse(text), text)

    def _labels(self, node: Any, text: str) -> frozenset[str]:
        if isinstance(node, NumberLiteral | StringLiteral):
            return frozenset()
        if isinstance(node, VectorSelector):
            return self._selected(node, text)
        if isinstance(node, MatrixSelector):
            return self._selected(node.vector_selector, text)
        if isinstance(node, ParenExpr | UnaryExpr | SubqueryExpr):
            return self._labels(node.expr, text)
        if isinstance(node, Call):
            return frozenset().union(*(self._labels(each, text) for each in node.args))
        if isinstance(node, AggregateExpr):
            return self._aggregated(node, text)
        assert isinstance(node, BinaryExpr), f"{type(node).__name__} in {text}"
        return self._joined(node, text)

    def _selected(self, selector: VectorSelector, text: str) -> frozenset[str]:
        labels = self.labels_of(selector.name)
        for matcher in selector.matchers.matchers:
            assert matcher.name in labels, f"{selector.name} has no label {matcher.name}: {text}"
            values = {each.get(matcher.name, "") for each in self.series[selector.name]}
            if matcher.op is MatchOp.Equal:
                assert matcher.value in values, f"no series of {selector.name} has {matcher}: {text}"
        return labels

    def _aggregated(self, node: AggregateExpr, text: str) -> frozenset[str]:
        inner = self._labels(node.expr, text)
        if str(node.op) in ("topk", "bottomk"):
            return inner
        if node.modifier is None:
            return frozenset()
        named = frozenset(node.modifier.labels)
        assert named <= inner, f"{sorted(named - inner)} are no labels of what is aggregated: {text}"
        return named if node.modifier.type is AggModifierType.By else inner - named

    def _joined(self, node: BinaryExpr, text: str) -> frozenset[str]:
        left, right = self._labels(node.lhs, text), self._labels(node.rhs, text)
        matching = None if node.modifier is None else node.modifier.matching
        if matching is None or matching.type is not LabelModifierType.Include:
            return left or right
        on = frozenset(matching.labels)
        assert on <= left & right, f"{sorted(on - (left & right))} are not labels of both sides: {text}"
        return left if str(node.op) in SETS else on


def read_text_format(text: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the series of a scrape, as name and labels."""
    for line in text.splitlines():
        if not line.startswith("#"):
            selector = promql_parser.parse(line.rpartition(" ")[0])
            assert isinstance(selector, VectorSelector)
            yield selector.name, {each.name: each.value for each in selector.matchers.matchers}

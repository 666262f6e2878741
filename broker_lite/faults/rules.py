"""Which fault applies to which request: pure, with the time passed in.

Theory of operation: a rule has a selector, the matching requests that it applies to (`nth`, `times`), and an effect.
For each request the rules are checked in the order in which they were added. Delays, pauses and throttles add up; of
the effects that decide the outcome (fail, drop, restart) the oldest rule's wins, and the others do not count this
request. Disk rules are checked for writes instead of requests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from enum import Enum
from typing import Any, Protocol

Place = tuple[str, int | None]
"""A topic, and one of its partitions or None for the topic as a whole."""


class Effect(Enum):
    """The effect of a rule."""

    FAIL = "fail"
    DELAY = "delay"
    DROP_BEFORE = "drop before"
    DROP_AFTER = "drop after"
    THROTTLE = "throttle"
    PAUSE = "pause"
    RESTART = "restart"
    DISK_FULL = "disk full"
    SLOW_DISK = "slow disk"


DECISIVE = frozenset({Effect.FAIL, Effect.DROP_BEFORE, Effect.DROP_AFTER, Effect.RESTART})
ON_DISK = frozenset({Effect.DISK_FULL, Effect.SLOW_DISK})

_OR_NONE = type(None)
_TYPES: tuple[tuple[str, tuple[type, ...], str], ...] = (
    ("topic", (str, _OR_NONE), "a name"),
    ("partition", (int, _OR_NONE), "a whole number"),
    ("client_id", (str, _OR_NONE), "a name"),
    ("nth", (int,), "a whole number, the first is 1"),
    ("times", (int, _OR_NONE), "a whole number, or None for always"),
    ("delay_ms", (int, float), "a number of milliseconds"),
    ("throttle_time_ms", (int,), "a whole number of milliseconds"),
    ("bytes_per_s", (int,), "a whole number of bytes in a second"),
)
"""The arguments of a fault, their types, and the error for another type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultSpec:
    """One rule as requested; None matches any."""

    effect: Effect
    apis: tuple[int, ...] | None = None
    topic: str | None = None
    partition: int | None = None
    client_id: str | None = None
    predicate: Callable[[Any], bool] | None = None
    nth: int = 1
    times: int | None = None
    error_code: int = 0
    delay_ms: int = 0
    throttle_time_ms: int = 0
    bytes_per_s: int = 0
    kill: bool = False
    after_effect: bool = False

    def __post_init__(self) -> None:
        for name, kinds, expected in _TYPES:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, kinds):
                raise TypeError(f"{name}={value!r}: expected {expected}")
        if self.predicate is not None and not callable(self.predicate):
            raise TypeError(f"predicate={self.predicate!r}: expected something to call with the decoded request")
        if self.nth < 1:
            raise ValueError(f"nth={self.nth}: the first matching request is 1")
        if self.times is not None and self.times < 1:
            raise ValueError(f"times={self.times}: at least 1, or None for always")
        if min(self.delay_ms, self.throttle_time_ms, self.bytes_per_s) < 0:
            raise ValueError("times and rates must not be negative")

    def is_at(self, place: Place) -> bool:
        """Whether the selector's topic and partition match."""
        topic, partition = place
        return (self.topic is None or topic == self.topic) and (
            self.partition is None or partition is None or partition == self.partition
        )

    def to_json(self) -> dict[str, Any]:
        """Return the form that is sent to another process. Raises ValueError for a predicate, which cannot be sent."""
        if self.predicate is not None:
            raise ValueError("a predicate works with a broker in a thread only: it cannot be sent to another process")
        return {**asdict(self), "effect": self.effect.value}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> FaultSpec:
        """Parse the result of `to_json`."""
        values = {field.name: document[field.name] for field in fields(cls)}
        apis = values["apis"]
        return cls(**{**values, "effect": Effect(values["effect"]), "apis": tuple(apis) if apis is not None else None})


class Facts(Protocol):
    """A request as rules see it; `message` and `places` are computed only if a rule needs them."""

    api_key: int
    client_id: str

    def message(self) -> Any:
        """Return the decoded request."""

    def places(self) -> Iterable[Place]:
        """Return the topics and partitions that the request is about."""


class Rule:
    """An active rule: how many requests matched, how often it fired."""

    __slots__ = ("busy_until_ms", "fired", "rule_id", "seen", "spec")

    def __init__(self, rule_id: int, spec: FaultSpec, seen: int = 0, fired: int = 0) -> None:
        self.rule_id = rule_id
        self.spec = spec
        self.seen = seen
        self.fired = fired
        self.busy_until_ms = 0

    def matches(self, facts: Facts) -> bool:
        """Whether the selector matches."""
        spec = self.spec
        if spec.apis is not None and facts.api_key not in spec.apis:
            return False
        if spec.client_id is not None and facts.client_id != spec.client_id:
            return False
        if (spec.topic is not None or spec.partition is not None) and not any(
            spec.is_at(place) for place in facts.places()
        ):
            return False
        return spec.predicate is None or bool(spec.predicate(facts.message()))

    def count(self) -> bool:
        """Count one match; return whether the rule applies to it."""
        self.seen += 1
        if self.seen < self.spec.nth or (self.spec.times is not None and self.fired >= self.spec.times):
            return False
        self.fired += 1
        return True

    def sending_delay_ms(self, size: int, now_ms: int) -> int:
        """Return how long an answer waits so that at most `bytes_per_s` pass, over all that this rule throttles."""
        if not self.spec.bytes_per_s:
            return 0
        self.busy_until_ms = max(self.busy_until_ms, now_ms) + size * 1000 // self.spec.bytes_per_s
        return self.busy_until_ms - now_ms


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """The effects on one request."""

    delay_ms: int = 0
    pauses: tuple[Rule, ...] = ()
    throttles: tuple[Rule, ...] = ()
    verdict: Rule | None = None

    @property
    def throttle_time_ms(self) -> int:
        """The throttle time in the answer."""
        return max((rule.spec.throttle_time_ms for rule in self.throttles), default=0)


NOTHING = FaultPlan()


class RuleBook:
    """All rules, in the order in which they were added. `on_fired` is called on each firing."""

    def __init__(self, on_fired: Callable[[Rule], None]) -> None:
        self._on_fired = on_fired
        # Replaced as a whole, never changed: another thread may be iterating over it.
        self.rules: tuple[Rule, ...] = ()

    def add(self, rule: Rule) -> None:
        """Add a rule."""
        self.rules = (*self.rules, rule)

    def remove(self, rule_id: int) -> Rule | None:
        """Remove a rule; None if it does not exist."""
        found = self.find(rule_id)
        self.rules = tuple(rule for rule in self.rules if rule is not found)
        return found

    def find(self, rule_id: int) -> Rule | None:
        """Return a rule."""
        return next((rule for rule in self.rules if rule.rule_id == rule_id), None)

    @property
    def has_request_rules(self) -> bool:
        """Whether requests must be checked."""
        return any(rule.spec.effect not in ON_DISK for rule in self.rules)

    @property
    def has_disk_rules(self) -> bool:
        """Whether writes must be checked."""
        return any(rule.spec.effect in ON_DISK for rule in self.rules)

    def plan(self, facts: Facts) -> FaultPlan:
        """Return the effects on a request."""
        delay_ms = 0
        pauses: list[Rule] = []
        throttles: list[Rule] = []
        verdict: Rule | None = None
        for rule in self.rules:
            effect = rule.spec.effect
            if effect in ON_DISK or (verdict is not None and effect in DECISIVE):
                continue
            if not rule.matches(facts) or not rule.count():
                continue
            if effect is Effect.DELAY:
                delay_ms += rule.spec.delay_ms
            elif effect is Effect.PAUSE:
                pauses.append(rule)
            elif effect is Effect.THROTTLE:
                throttles.append(rule)
            else:
                verdict = rule
            self._on_fired(rule)
        if not (delay_ms or pauses or throttles or verdict):
            return NOTHING
        return FaultPlan(delay_ms, tuple(pauses), tuple(throttles), verdict)

    def write(self, place: Place | None) -> tuple[int, bool]:
        """Return the effects on a write: milliseconds to wait, and whether the disk is full.

        `place` is None for files that belong to no partition; only rules without topic and partition see those.
        """
        delay_ms, full = 0, False
        for rule in self.rules:
            spec = rule.spec
            if spec.effect not in ON_DISK or full:
                continue
            everywhere = spec.topic is None and spec.partition is None
            if not (everywhere or (place is not None and spec.is_at(place))) or not rule.count():
                continue
            if spec.effect is Effect.DISK_FULL:
                full = True
            else:
                delay_ms += spec.delay_ms
            self._on_fired(rule)
        return delay_ms, full

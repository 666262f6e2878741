"""The three guarantees: one implementation, three orders of the two writes.

Rows and offsets are the two writes of a batch. With offsets first, a crash between the two loses the batch's rows; with
rows first, a crash between the two duplicates them; with both in one commit, there is no such moment.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from sparkonce.offset_store.record import Writes


class Guarantee(Enum):
    """The values of the option ``deliveryGuarantee``."""

    AT_MOST_ONCE = "at-most-once"
    AT_LEAST_ONCE = "at-least-once"
    EXACTLY_ONCE = "exactly-once"

    @property
    def keeping(self) -> str | None:
        """The option, if it promises that no record is lost."""
        return None if self is Guarantee.AT_MOST_ONCE else f"deliveryGuarantee={self.value}"


@dataclass(frozen=True, slots=True)
class Order:
    """The commits made before the batch's tasks run, and after them."""

    before_tasks: tuple[Writes, ...]
    after_tasks: tuple[Writes, ...]


ORDERS = {
    Guarantee.AT_MOST_ONCE: Order((Writes.OFFSETS,), (Writes.ROWS,)),
    Guarantee.AT_LEAST_ONCE: Order((), (Writes.ROWS, Writes.OFFSETS)),
    Guarantee.EXACTLY_ONCE: Order((), (Writes.ROWS | Writes.OFFSETS,)),
}

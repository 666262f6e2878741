"""The page *Transactions*: open ones, the reason, and the command that ends them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sparkonce.jobs.cli.housekeeping.open_transactions import Application, OpenTransaction, Why
from sparkonce.jobs.cli.housekeeping.transactions_report import (
    commands_that_end,
    left_ms,
    loss_text,
    meaning,
    partitions_text,
)
from sparkonce.jobs.ui.kafka.state import OtherTransaction
from sparkonce.jobs.ui.page import Page, PageRequest
from sparkonce.jobs.ui.site import Site
from sparkonce.offset_store.clock import now_ms


@dataclass(frozen=True, slots=True)
class Row:
    """An open transaction's row on the page."""

    transactional_id: str
    state: str
    producer: str
    age_s: float
    left_s: float
    holds_back: str
    why: str


def _data(site: Site, _: PageRequest) -> Mapping[str, Any]:
    if site.cluster is None:
        return {"transactions": None, "applications": (), "others": ()}
    result, now = site.cluster.transactions(), now_ms()
    applications = result.found.ours.applications
    return {
        "transactions": result,
        "servers": site.cluster.servers,
        "applications": [
            {
                "app_id": each.app_id,
                "rows": [_ours(one, now) for one in each.open],
                "meanings": [meaning(why, each) for why in Why if any(one.why is why for one in each.open)],
                "loss": _loss(each),
                "commands": commands_that_end(each, site.cluster.servers),
            }
            for each in applications
        ],
        "others": [_other(each, now) for each in result.found.others],
    }


def _ours(each: OpenTransaction, now: int) -> Row:
    found = each.found
    return Row(
        found.transactional_id,
        found.state.value,
        f"{found.producer_id}, epoch {found.epoch}",
        max(now - found.started_ms, 0) // 1000,
        left_ms(each, now) // 1000,
        partitions_text(found.partitions),
        each.why.value,
    )


def _other(found: OtherTransaction, now: int) -> Row:
    left_s = max(found.started_ms + found.timeout_ms - now, 0) // 1000
    return Row(
        found.transactional_id,
        found.state,
        f"{found.producer_id}, epoch {found.epoch}",
        max(now - found.started_ms, 0) // 1000,
        left_s,
        partitions_text(found.partitions),
        "its producer is at work, or has died",
    )


def _loss(application: Application) -> str | None:
    last = application.decisions.last
    return loss_text(application.app_id, last, application) if application.is_hurt and last is not None else None


TRANSACTIONS = Page("/transactions", "Transactions", "transactions.html", _data, menu="Transactions")

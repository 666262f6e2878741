"""Faults between a query and its store: each record comes once, whatever happens to a request.

Three batches: one before the fault, one that meets it, one after it. Where the fault stops the query, it is started
again, as its supervisor would. Table and checkpoint are in the store.
docs/internals/store_faults.md has the table of faults.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from deltalake import DeltaTable

from lab.store.fault_proxy import FaultProxy
from lab.store.faults import COMMIT, DATA_FILE, Rule
from lab.store.s3 import S3Store, open_s3
from sparkonce.exactly_once.audit import Auditor, Scope
from sparkonce.offset_store.commit_log import CommitLog
from sparkonce.offset_store.locations import Location
from sparkonce.offset_store.log.table_log import PUTS
from tests.unit.sink.query_by_hand import Query
from tests.unit.sink.stored_query import CheckpointInStore, upload

PAGE = Path(__file__).resolve().parents[3] / "docs/internals/store_faults.md"
REPEATS = 3
PATIENCE = {
    "max_retries": str(REPEATS),
    "retry_timeout": "20s",
    "timeout": "500ms",
    "connect_timeout": "1s",
    "backoff_config.init_backoff": "10ms",
    "backoff_config.max_backoff": "50ms",
}
TOO_OFTEN = REPEATS + 1
OFFSETS_LISTING = r"list-type=2.*prefix=[^&]*offsets"
LOG_LISTING = r"list-type=2.*prefix=[^&]*_delta_log"
GOES_ON = "the batch is committed, and the query goes on"
OVERLOADED = "the query stops: “The store is overloaded or down”"
BROKE = "the query stops: “The connection to the store broke”"
NO_ANSWER = "the query stops: “The store did not answer in time”"
EXPIRED = "the query stops: “The credentials have expired”"
DENIED = "the query stops: “These credentials may not do that”"


@dataclass(frozen=True)
class Case:
    """One fault."""

    fault: str
    outcome: str
    rule: Rule
    late_lands: str = ""
    """When a request that was held back is passed on: before or after the query is started again."""

    @property
    def needs_pages(self) -> bool:
        """Whether it is about a later page of a listing."""
        return self.rule.skip > 0

    @property
    def row(self) -> str:
        """Its line of the page's table."""
        again = "" if self.outcome == GOES_ON else ". Started again, it goes on"
        return f"| {self.fault} | {self.outcome}{again} | 0 | 0 |"


CASES = (
    Case("503 SlowDown at the commit, twice", GOES_ON, Rule("SLOW_DOWN", "PUT", COMMIT, times=2)),
    Case("503 SlowDown at a data file, twice", GOES_ON, Rule("SLOW_DOWN", "PUT|POST", DATA_FILE, times=2)),
    Case(
        "503 SlowDown at the commit, more often than requests are repeated",
        OVERLOADED,
        Rule("SLOW_DOWN", "PUT", COMMIT, times=PUTS * TOO_OFTEN),
    ),
    Case(
        "500 at a data file, more often than requests are repeated",
        OVERLOADED,
        Rule("UNAVAILABLE", "PUT|POST", DATA_FILE, times=TOO_OFTEN),
    ),
    Case(
        "500 where the driver asks whether the data files are there",
        OVERLOADED,
        Rule("UNAVAILABLE", "HEAD", DATA_FILE, times=TOO_OFTEN),
    ),
    Case("409 ConditionalRequestConflict at the commit", GOES_ON, Rule("CONFLICT", "PUT", COMMIT, conditional=True)),
    Case(
        "The listing of the checkpoint fails at its second page",
        OVERLOADED,
        Rule("UNAVAILABLE", path=OFFSETS_LISTING, skip=1, times=TOO_OFTEN),
    ),
    Case(
        "The listing of the checkpoint ends halfway through its second page",
        BROKE,
        Rule("CUT", path=OFFSETS_LISTING, skip=1),
    ),
    Case(
        "The listing of the table's log fails at its second page",
        OVERLOADED,
        Rule("UNAVAILABLE", path=LOG_LISTING, skip=1, times=TOO_OFTEN),
    ),
    Case(
        "The listing of the table's log ends halfway through its second page",
        BROKE,
        Rule("CUT", path=LOG_LISTING, skip=1),
    ),
    Case("The answer with a commit's file ends halfway", GOES_ON, Rule("CUT", "GET", COMMIT)),
    Case("The commit does not reach the store (time-out)", GOES_ON, Rule("NO_ANSWER", "PUT", COMMIT)),
    Case(
        "The commit does not reach the store, however often it is put",
        NO_ANSWER,
        Rule("NO_ANSWER", "PUT", COMMIT, times=PUTS),
    ),
    Case("The commit lands, and its answer is lost", GOES_ON, Rule("LOST_ANSWER", "PUT", COMMIT)),
    Case(
        "The commit lands, its answer is lost, and those of its repetitions (412) are",
        GOES_ON,
        Rule("LOST_ANSWER", "PUT", COMMIT, times=REPEATS),
    ),
    Case(
        "The commit times out, and lands before the query is started again",
        NO_ANSWER,
        Rule("LATE", "PUT", COMMIT, times=PUTS),
        late_lands="before",
    ),
    Case(
        "The commit times out, and reaches the store when the query was started again",
        NO_ANSWER,
        Rule("LATE", "PUT", COMMIT, times=PUTS),
        late_lands="after",
    ),
    Case("A data file's part lands, and the answer is lost", GOES_ON, Rule("LOST_ANSWER", "PUT", DATA_FILE)),
    Case("A data file's part does not reach the store (time-out)", GOES_ON, Rule("NO_ANSWER", "PUT", DATA_FILE)),
    Case("The token expires before the commit", EXPIRED, Rule("EXPIRED", "PUT", COMMIT)),
    Case("The token expires while a data file is written", EXPIRED, Rule("EXPIRED", "PUT|POST", DATA_FILE)),
    Case("The token expires before the checkpoint is read", EXPIRED, Rule("EXPIRED", path="offsets")),
    Case("The right to write is withdrawn before the commit", DENIED, Rule("DENIED", "PUT", COMMIT)),
)


@pytest.fixture(scope="module")
def store() -> Iterator[S3Store]:
    with open_s3() as running:
        yield running


@pytest.fixture(scope="module")
def proxies(store: S3Store, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[bool, FaultProxy]]:
    """Two proxies: of one, each page of a listing has one key. That takes many requests, which few cases need."""
    made = tmp_path_factory.mktemp
    with FaultProxy(store.address, made("whole")) as whole, FaultProxy(store.address, made("pages"), 1) as pages:
        yield {False: whole, True: pages}


class ProxiedQuery(CheckpointInStore):
    """A query that reaches the store through the proxy, while the test looks and writes past it."""

    def __init__(self, root: Path, store: S3Store, proxy: FaultProxy) -> None:
        super().__init__(root, S3Store(proxy.address))
        self.direct = store
        self.options |= {f"storage.{name}": value for name, value in PATIENCE.items()}

    def log(self, batch_id: int, end: int, partitions: int = 1) -> None:
        Query.log(self, batch_id, end, partitions)
        upload(self.checkpoint, self.options["checkpointLocation"], self.direct)

    def handle(self) -> DeltaTable:
        return DeltaTable(self.uri, storage_options=dict(self.direct.storage_options))

    def attempt(self, batch_id: int) -> str | None:
        """Do a batch as Spark would, and return the error that stops the query, if one does."""
        self.log(batch_id, 10 * (batch_id + 1))
        try:
            messages = self.tasks(rows=[{"v": batch_id}])
        except Exception as error:
            return str(error)
        try:
            self.commit(batch_id, messages)
        except Exception as error:
            self.writer().abort(list(messages), batch_id)  # as Spark does: with the message of every task
            return str(error)
        return None


@pytest.mark.timeout(120)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.fault)
def test_each_record_comes_once(
    case: Case, tmp_path_factory: pytest.TempPathFactory, store: S3Store, proxies: dict[bool, FaultProxy]
) -> None:
    proxy = proxies[case.needs_pages]
    query = ProxiedQuery(tmp_path_factory.mktemp("fault"), store, proxy)
    proxy.use()
    assert query.attempt(0) is None
    proxy.use(case.rule)
    error = query.attempt(1)
    assert proxy.fired() == [case.rule.times], "the fault did not happen, or not as often as it was to"
    proxy.use()
    if case.outcome == GOES_ON:
        assert error is None
    else:
        assert error is not None
        words = case.outcome.split("“")[1].rstrip("”")
        assert words in error
        assert "\n" not in error
        if case.late_lands == "before":
            assert proxy.deliver_late() == [200, 412, 412]
        assert query.attempt(1) is None
        if case.late_lands == "after":
            assert proxy.deliver_late() == [412] * PUTS
    assert query.attempt(2) is None
    assert query.values() == [0, 1, 2]
    log = CommitLog.open(Location.parse(query.uri), store.storage_options)
    auditor = Auditor(Scope("app"), log.oldest_state())
    for commit in log.commits():
        auditor.add(commit)
    assert auditor.finish(log.stored).proven


def test_the_page_lists_these_faults() -> None:
    page = PAGE.read_text()
    for case in CASES:
        assert case.row in page
    assert page.count(" | 0 | 0 |") == len(CASES)

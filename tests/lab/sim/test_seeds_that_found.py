"""Seeds that found something among tens of thousands, each with what that was."""

from __future__ import annotations

import pytest

from lab.sim.plan import plan_of
from lab.sim.simulation import run_plan

FOUND = {
    100_645: "the judge looked at a group whose coordinator had just moved",
    102_318: "a standalone broker died when its faults were over, and was not started again",
    103_712: "an answer of four bytes, cut off by a fault, was judged as a whole one",
    103_719: "a member was never told to revoke partitions, since its coordinator died, and was removed",
    104_860: "a new controller changed the ACLs that its broker knew, not those of its log: a rule was lost",
    105_794: "nothing was left of a compacted log but its end, after a disk had lied, which the judge took for a loss",
    106_460: "an answer to a request that a member had given up was judged as one that it heard",
    106_806: "a member came back to a group that was empty and is gone, and was told so, as Kafka tells it",
    107_592: "a replica that had not told its epoch was let in sync after it had lost records with its machine",
    108_068: "an answer about a generation came after its group had been deleted, and was held against the next group",
    116_304: "a broker died just before the last look, which nobody had noticed yet, and its files were looked at",
    116_737: "a batch that compaction had written anew was held to be the one that had been appended",
    201_146: "a request that a resigned controller passed on was carried out after a later one was acknowledged",
    301_080: "a record was to be sent to a topic that was deleted meanwhile, which failed in the simulated client",
    303_900: "a heartbeat that a member had given up arrived after a later one, and took it to an epoch unheard of",
    306_343: "the clocks were put forward while the client that checks offsets still waited for its last answer",
    308_729: "a member that had not heard that it was to give up partitions was judged as if nobody had told it",
    401_335: "the cluster was called well while a broker's thread was still held up, which was to hear that it leads",
    420_568: "a controller's decision was sent in its next session, before it had heard of the end of the last one",
    421_982: "a coordinator that did not know of its successor rejected a producer id of that one, as Kafka's would",
    424_238: "a leader had forgotten epochs of records that came back with a crash, and a follower kept others there",
    432_961: "a broken disk was replaced with its records, as it had lied long before: they were the last ones left",
    433_535: "a compacted log was deleted when its replica moved away, and missed when the replica came back",
    433_902: "a removed replica fetched on, had not heard of it, was added again, and was in sync with an empty log",
    443_708: "the operator deleted the ACLs of all users, and the admin checker missed its own rule",
}


@pytest.mark.parametrize("seed", FOUND)
def test_a_seed_that_found_something_finds_nothing_any_more(seed: int) -> None:
    assert run_plan(plan_of(seed)).violation is None, FOUND[seed]

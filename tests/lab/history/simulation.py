"""A correct log of a few partitions, with random producers, transactions and readers, told as a history.

It keeps the truth (what each partition holds, how each transaction ended) and lets clients tell only what they would
know: acknowledgements get lost, commits stay without an answer, producers fall silent, groups go back.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

Object = dict[str, Any]
PARTITIONS = 2


@dataclass
class BrokerTransaction:
    outcome: str = "open"
    places: list[tuple[int, int]] = field(default_factory=list)


@dataclass
class Entry:
    """What one offset holds; a marker of a transaction has no value."""

    value: str | None
    transaction: BrokerTransaction | None = None


class Simulation:
    def __init__(self, random: Random) -> None:
        self.random = random
        self.log: list[list[Entry]] = [[] for _ in range(PARTITIONS)]
        self.transactions: list[BrokerTransaction] = []
        self.events: list[Object] = []
        self.clients: list[Any] = [
            PlainProducer(self, "plain"),
            TransactionalProducer(self, "txn-1"),
            TransactionalProducer(self, "txn-2"),
            GroupReader(self, "member-1", "read_committed"),
            GroupReader(self, "member-2", "read_uncommitted"),
            Table(self, "table"),
        ]

    def run(self, steps: int) -> list[Object]:
        for _ in range(steps):
            self.random.choice(self.clients).step()
        for transaction in self.transactions:
            if transaction.outcome == "open":
                self.end(transaction, "aborted")
        for client in self.clients:
            client.finish()
        FinalReader(self, "final-1").read()
        FinalReader(self, "final-2").read()
        return self.events

    def tell(self, name: str, client: str, **fields: Any) -> None:
        self.events.append({"name": name, "client": client, **fields})

    def append(self, value: str, transaction: BrokerTransaction | None = None) -> dict[str, Any]:
        partition = self.random.randrange(PARTITIONS)
        self.log[partition].append(Entry(value, transaction))
        offset = len(self.log[partition]) - 1
        if transaction is not None:
            transaction.places.append((partition, offset))
        return {"topic": "t", "partition": partition, "offset": offset}

    def end(self, transaction: BrokerTransaction, outcome: str) -> None:
        transaction.outcome = outcome
        for partition in {partition for partition, _ in transaction.places}:
            self.log[partition].append(Entry(None))

    def visible_end(self, partition: int, isolation: str) -> int:
        """The high watermark, or the last stable offset."""
        unstable = [
            offset
            for transaction in self.transactions
            if transaction.outcome == "open" and isolation == "read_committed"
            for number, offset in transaction.places
            if number == partition
        ]
        return min([len(self.log[partition]), *unstable])

    def visible(self, partition: int, offset: int, isolation: str) -> bool:
        entry = self.log[partition][offset]
        if entry.value is None:
            return False
        aborted = entry.transaction is not None and entry.transaction.outcome != "committed"
        return not (aborted and isolation == "read_committed")


class PlainProducer:
    def __init__(self, simulation: Simulation, name: str) -> None:
        self.simulation, self.name, self.sent = simulation, name, 0
        simulation.tell("startup_complete", name)

    def step(self) -> None:
        simulation = self.simulation
        value = f"{self.name}.{self.sent}"
        self.sent += 1
        simulation.tell("producer_send_started", self.name, topic="t", value=value)
        fate = simulation.random.choice(["acked"] * 4 + ["landed", "vanished", "refused", "landed in silence"])
        error = {"topic": "t", "value": value, "message": "…"}
        if fate in ("acked", "landed", "landed in silence"):
            place = simulation.append(value)
            if fate == "acked":
                simulation.tell("producer_send_success", self.name, value=value, **place)
        if fate in ("landed", "vanished"):
            simulation.tell("producer_send_error", self.name, outcome="unknown", **error)
        elif fate == "refused":
            simulation.tell("producer_send_error", self.name, outcome="failed", **error)

    def finish(self) -> None:
        pass


class TransactionalProducer:
    def __init__(self, simulation: Simulation, name: str) -> None:
        self.simulation, self.name, self.sent, self.number = simulation, name, 0, 0
        self.open: BrokerTransaction | None = None
        simulation.tell("startup_complete", name)

    def step(self) -> None:
        simulation, number = self.simulation, self.number
        if self.open is None:
            self.open = BrokerTransaction()
            simulation.transactions.append(self.open)
            simulation.tell("transaction_begin", self.name, transaction=number)
        elif simulation.random.random() < 0.7:
            value = f"{self.name}.{self.sent}"
            self.sent += 1
            simulation.tell("producer_send_started", self.name, topic="t", value=value, transaction=number)
            place = simulation.append(value, self.open)
            simulation.tell("producer_send_success", self.name, value=value, transaction=number, **place)
        else:
            self.end(
                simulation.random.choice(["commit"] * 4 + ["abort", "abort", "unknown", "silence", "failed commit"])
            )

    def end(self, how: str) -> None:
        simulation, step = self.simulation, {"transaction": self.number}
        assert self.open is not None
        if how == "abort":
            simulation.tell("transaction_abort", self.name, outcome="success", **step)
            simulation.end(self.open, "aborted")
        else:
            simulation.tell("transaction_commit_started", self.name, **step)
            landed = how == "commit" or (how != "failed commit" and simulation.random.random() < 0.5)
            simulation.end(self.open, "committed" if landed else "aborted")
            if how == "failed commit":
                simulation.tell("transaction_commit", self.name, outcome="failed", **step)
                simulation.tell("transaction_abort", self.name, outcome="success", **step)
            elif how != "silence":
                outcome = "success" if how == "commit" else "unknown"
                simulation.tell("transaction_commit", self.name, outcome=outcome, **step)
        self.open = None
        self.number += 1

    def finish(self) -> None:
        pass


class GroupReader:
    """Reads at its position, and now and then goes back to an older one with a rebalance, or jumps with a seek."""

    def __init__(self, simulation: Simulation, name: str, isolation: str) -> None:
        self.simulation, self.name, self.isolation = simulation, name, isolation
        self.position = [0] * PARTITIONS
        simulation.tell("startup_complete", name, isolation_level=isolation)
        self.assigned("partitions_assigned", range(PARTITIONS))

    def assigned(self, event: str, partitions: Any) -> None:
        named = [{"topic": "t", "partition": partition} for partition in partitions]
        self.simulation.tell(event, self.name, partitions=named)

    def step(self) -> None:
        random = self.simulation.random
        partition = random.randrange(PARTITIONS)
        chance = random.random()
        if chance < 0.1:
            self.assigned("partitions_revoked", [partition])
            self.position[partition] = random.randint(0, self.position[partition])
            self.assigned("partitions_assigned", [partition])
        elif chance < 0.15:
            self.position[partition] = random.randint(0, len(self.simulation.log[partition]))
            place = {"topic": "t", "partition": partition, "offset": self.position[partition]}
            self.simulation.tell("seek", self.name, **place)
        else:
            self.poll(partition, random.randint(1, 8))

    def poll(self, partition: int, most: int) -> None:
        simulation = self.simulation
        end = min(self.position[partition] + most, simulation.visible_end(partition, self.isolation))
        read = [
            offset
            for offset in range(self.position[partition], end)
            if simulation.visible(partition, offset, self.isolation)
        ]
        for offset in read:
            self.show({"topic": "t", "partition": partition, "offset": offset}, simulation.log[partition][offset].value)
        self.polled(partition, len(read))
        self.position[partition] = max(self.position[partition], end)

    def show(self, place: Object, value: str | None) -> None:
        self.simulation.tell("record_data", self.name, value=value, **place)

    def polled(self, partition: int, count: int) -> None:
        self.simulation.tell("records_consumed", self.name, count=count, partitions=[])

    def finish(self) -> None:
        pass


class Table(GroupReader):
    """A result table: what it has read is there once, whatever happens to its reader."""

    def __init__(self, simulation: Simulation, name: str) -> None:
        super().__init__(simulation, name, "read_committed")
        self.said = [0] * PARTITIONS

    def step(self) -> None:
        random = self.simulation.random
        self.poll(random.randrange(PARTITIONS), random.randint(1, 8))

    def show(self, place: Object, value: str | None) -> None:
        self.simulation.tell("result_row", self.name, value=value, **place)

    def polled(self, partition: int, count: int) -> None:
        pass

    def finish(self) -> None:
        ends = [{"topic": "t", "partition": number, "offset": self.position[number]} for number in range(PARTITIONS)]
        self.simulation.tell("result_end", self.name, partitions=ends)


class FinalReader(GroupReader):
    def __init__(self, simulation: Simulation, name: str) -> None:
        super().__init__(simulation, name, "read_committed")

    def assigned(self, event: str, partitions: Any) -> None:
        named = [{"topic": "t", "partition": partition, "offset": 0} for partition in partitions]
        self.simulation.tell(event, self.name, partitions=named)

    def read(self) -> None:
        for partition in range(PARTITIONS):
            self.poll(partition, len(self.simulation.log[partition]))
        ends = [{"topic": "t", "partition": number, "offset": self.position[number]} for number in range(PARTITIONS)]
        self.simulation.tell("end_reached", self.name, final=True, partitions=ends)


def simulate(random: Random, steps: int) -> list[Object]:
    """Return the events of one run."""
    return Simulation(random).run(steps)

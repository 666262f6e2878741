"""ZooKeeper's nodes on one of its servers: the effect of transactions, and which watches they fire.

All servers apply the same transactions in the same order, and so reach the same state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from sparkonce.broker_lite.cluster.zookeeper_nodes import ANY_VERSION, Check, Create, Delete, Operation, SetData
from sparkonce.broker_lite.server.zookeeper_session import (
    BadVersionError,
    Node,
    NodeExistsError,
    NoNodeError,
    ZooKeeperError,
)

ROOT: Final = "/"


class Transaction(NamedTuple):
    """An atomic change; without operations it ends a session, and deletes its ephemeral nodes."""

    session: int
    operations: tuple[Operation, ...] | None


class Change(NamedTuple):
    """A change that a watch may cover."""

    path: str
    of_children: bool
    """Whether its children have changed; otherwise the node was created, deleted or changed."""


class Tree:
    """The nodes after a number of transactions."""

    def __init__(self) -> None:
        self.zxid = 0
        """The number of transactions applied."""
        self._nodes: dict[str, Node] = {ROOT: Node(b"", 0, 0)}
        self._children: dict[str, set[str]] = {ROOT: set()}

    def find(self, path: str) -> Node | None:
        """Return a node; None if there is none."""
        return self._nodes.get(path)

    def get(self, path: str) -> Node:
        """Return a node.

        Raises:
            NoNodeError: if there is none.
        """
        found = self._nodes.get(path)
        if found is None:
            raise NoNodeError(path)
        return found

    def children(self, path: str) -> list[str]:
        """Return the names of a node's children.

        Raises:
            NoNodeError: if there is none.
        """
        self.get(path)
        return sorted(self._children[path])

    def paths(self) -> Iterator[str]:
        """Return the paths of all nodes."""
        return iter(self._nodes)

    def apply(self, transaction: Transaction) -> tuple[ZooKeeperError | None, list[Change]]:
        """Apply a transaction; return why it fails, and the changes."""
        self.zxid += 1
        changes: list[Change] = []
        undo: list[Callable[[], None]] = []
        try:
            for each in self._operations(transaction):
                self._do(each, transaction.session, changes, undo)
        except ZooKeeperError as error:
            for back in reversed(undo):
                back()
            return error, []
        return None, changes

    def _operations(self, transaction: Transaction) -> Sequence[Operation]:
        if transaction.operations is not None:
            return transaction.operations
        owned = [path for path, node in self._nodes.items() if node.session == transaction.session]
        return [Delete(path, ANY_VERSION) for path in owned]

    def _do(self, operation: Operation, session: int, changes: list[Change], undo: list[Callable[[], None]]) -> None:
        path = operation.path
        parent, _, name = path.rpartition("/")
        parent = parent or ROOT
        if isinstance(operation, Create):
            self._check_room(path, parent)
            self._put(path, Node(operation.data, 0, session if operation.ephemeral else 0), undo)
            self._children[path] = set()
            self._children[parent].add(name)
            undo.append(lambda: self._children[parent].discard(name))
            changes += Change(path, of_children=False), Change(parent, of_children=True)
            return
        node = self.get(path)
        if not isinstance(operation, Create) and operation.version not in (ANY_VERSION, node.version):
            raise BadVersionError(f"{path} has version {node.version}, not {operation.version}")
        if isinstance(operation, SetData):
            self._put(path, Node(operation.data, node.version + 1, node.session), undo)
            changes.append(Change(path, of_children=False))
        elif not isinstance(operation, Check):
            if self._children[path]:
                raise ZooKeeperError(f"{path} has nodes below it")
            self._put(path, None, undo)
            self._children[parent].discard(name)
            undo.append(lambda: self._children[parent].add(name))
            changes += Change(path, of_children=False), Change(path, of_children=True), Change(parent, of_children=True)

    def _check_room(self, path: str, parent: str) -> None:
        if path in self._nodes:
            raise NodeExistsError(path)
        if self.get(parent).session:
            raise ZooKeeperError(f"{parent} is ephemeral, and has no nodes below it")

    def _put(self, path: str, node: Node | None, undo: list[Callable[[], None]]) -> None:
        before = self._nodes.get(path)

        def put(value: Node | None) -> None:
            if value is None:
                del self._nodes[path]
            else:
                self._nodes[path] = value

        put(node)
        undo.append(lambda: put(before))

"""Brokers of another version of this package, loaded beside those of this one.

Theory of operation: the folders `broker_lite` and `sparkonce/kafka/protocol` of a checkout become the packages
`sparkonce_former_1.broker_lite` and `sparkonce_former_1.kafka.protocol`, by loading their sources with the names of
modules in them changed. (`_MOVED` says where an older checkout has them.) What the simulator has for the classes
of one version (`_FOR_EACH_VERSION`) is also loaded in that package, from the sources of this version, so
that it works with the classes of the other one. The rest of the simulator exists once, and so do the errors that it
handles (`_SHARED`).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from itertools import count
from pathlib import Path
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Final, NamedTuple

from lab.sim.judges.inside import observed_brokers
from lab.sim.machine.process import Process

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from lab.sim.plan import SeedPlan

_NAME: Final = re.compile(r"\b(?:sparkonce\.(broker_lite\.|kafka\.protocol\b)|lab\.(sim\.))([\w.]*)")
_SIMULATOR: Final = "sim."
_MOVED: Final = {
    "kafka.protocol": "broker_lite.protocol",
    "broker_lite.log.producer_state": "broker_lite.coordinators.producer_state",
    "broker_lite.node.fetch_sessions": "broker_lite.coordinators.fetch_sessions",
    "broker_lite.node.member_mode": "broker_lite.node.in_cluster",
    "broker_lite.server.directory_mode": "broker_lite.server.directory_seat",
    "broker_lite.server.mode": "broker_lite.server.seat",
    "broker_lite.server.standalone_mode": "broker_lite.server.standalone_seat",
    "broker_lite.server.zookeeper_mode": "broker_lite.server.zookeeper_seat",
}
"""Where older checkouts have a module or a package."""
_RENAMED: Final = {"broker_lite.server.connection": ("ClientConnection", "Connection")}
"""A class that the simulator uses, and its name in older checkouts, by module."""
_FOR_EACH_VERSION: Final = frozenset(
    {
        "sim.faults.long_ago",
        "sim.judges.groups",
        "sim.judges.inside",
        "sim.judges.observed_log",
        "sim.judges.observing",
        "sim.judges.rare",
        "sim.judges.transactions",
        "sim.judges.watched_log",
        "sim.machine.process",
    }
)
_SHARED: Final = frozenset(
    {
        "broker_lite.assertions",
        "broker_lite.replication.invariants",
        "broker_lite.server.zookeeper_session",
        "broker_lite.waiting",
        "kafka.protocol.errors",
    }
)
_numbers = count(1)


class Version(NamedTuple):
    """The classes of one version of the brokers."""

    process: type[Process]
    observed_brokers: Callable[..., AbstractContextManager[None]]


THIS: Final = Version(Process, observed_brokers)


class FormerVersionError(Exception):
    """The brokers of a checkout do not run in this simulator; the message says why."""


@cache
def former_version(directory: str) -> Version:
    """Load the brokers of a checkout.

    Raises:
        FormerVersionError: if they cannot be loaded.
    """
    checkout = Path(directory)
    if not (checkout / "broker_lite").is_dir():
        raise FormerVersionError(f"{directory} is no checkout: it has no folder broker_lite")
    package = f"sparkonce_former_{next(_numbers)}"
    sys.meta_path.insert(0, _Finder(package, checkout))
    try:
        process = import_module(f"{package}.{Process.__module__.removeprefix('lab.')}")
        inside = import_module(f"{package}.{observed_brokers.__module__.removeprefix('lab.')}")
    except (ImportError, AttributeError) as error:
        raise FormerVersionError(f"the brokers of {directory} do not run in this simulator: {error}") from error
    process.Process.version = ", of the former version"
    return Version(process.Process, inside.observed_brokers)


def versions_of(plan: SeedPlan) -> tuple[Version, ...]:
    """Return the versions of a plan's brokers."""
    return (THIS,) if plan.former is None else (THIS, former_version(plan.former.directory))


class _Finder(MetaPathFinder):
    """Finds the modules of one package, in the checkout and in the simulator of this version."""

    def __init__(self, package: str, checkout: Path) -> None:
        self._package = package
        self._checkout = checkout

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """See `MetaPathFinder`."""
        del path, target
        if fullname in (self._package, f"{self._package}.kafka"):
            return ModuleSpec(fullname, None, is_package=True)
        if not fullname.startswith(f"{self._package}."):
            return None
        place = self._place(fullname.removeprefix(f"{self._package}."))
        is_package = place.is_dir()
        file = place / "__init__.py" if is_package else place.with_suffix(".py")
        if not file.is_file():
            return None
        loader = _Loader(fullname, str(file), self._package)
        return spec_from_file_location(
            fullname, file, loader=loader, submodule_search_locations=[str(place)] if is_package else None
        )

    def _place(self, name: str) -> Path:
        """Return where a module or package is, without ``.py``; in an older checkout, where it was."""
        if name == "sim" or name.startswith(_SIMULATOR):
            return Path(__file__).parent.joinpath(*name.split(".")[1:])
        place = _inside(self._checkout, name)
        if not (place.is_dir() or place.with_suffix(".py").is_file()):
            for new, old in _MOVED.items():
                if f"{name}.".startswith(f"{new}."):
                    return _inside(self._checkout, old + name.removeprefix(new))
        return place


def _inside(checkout: Path, name: str) -> Path:
    root, *rest = name.split(".")
    return (checkout if root == "broker_lite" else checkout / "sparkonce").joinpath(root, *rest)


class _Loader(SourceFileLoader):
    """Loads a module with renamed imports; its bytecode is not cached."""

    def __init__(self, fullname: str, path: str, package: str) -> None:
        super().__init__(fullname, path)
        self._package = package

    def exec_module(self, module: ModuleType) -> None:
        """See `Loader`."""
        super().exec_module(module)
        new, old = _RENAMED.get(module.__name__.removeprefix(f"{self._package}."), ("", ""))
        if old and not hasattr(module, new):
            setattr(module, new, getattr(module, old))

    def get_code(self, fullname: str) -> CodeType:
        """See `SourceLoader`."""
        del fullname
        return compile(
            _NAME.sub(self._renamed, self.get_data(self.path).decode()), self.path, "exec", dont_inherit=True
        )

    def _renamed(self, found: re.Match[str]) -> str:
        name = (found[1] or found[2]) + found[3]
        for new, old in _MOVED.items():
            if f"{name}.".startswith(f"{old}."):
                name = new + name.removeprefix(old)
        if name.startswith(_SIMULATOR):
            return f"{self._package}.{name}" if name in _FOR_EACH_VERSION else f"lab.{name}"
        return f"sparkonce.{name}" if name in _SHARED else f"{self._package}.{name}"

"""Imports point one way, and the pure cores stay pure."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
PACKAGES = ("broker_lite", "connectors", "exactly_once", "jobs", "offset_store")

# What a part may import of our own packages, the longest matching prefix deciding.
ALLOWED = {
    "broker_lite.protocol": ("broker_lite.protocol",),
    "broker_lite.coordinators": ("broker_lite.protocol", "broker_lite.coordinators"),
    "broker_lite.controller": ("broker_lite.protocol", "broker_lite.controller"),
    "broker_lite.replication": (
        "broker_lite.protocol",
        "broker_lite.controller",
        "broker_lite.log.leader_epochs",
        "broker_lite.replication",
    ),
    "broker_lite.cluster": (
        "broker_lite.protocol",
        "broker_lite.controller",
        "broker_lite.replication",
        "broker_lite.log",
        "broker_lite.scheduling",
        "broker_lite.cluster",
    ),
    "broker_lite.log": ("broker_lite.protocol", "broker_lite.coordinators", "broker_lite.log", "broker_lite.settings"),
    "broker_lite.security": (
        "broker_lite.protocol",
        "broker_lite.log.storage",
        "broker_lite.security",
        "broker_lite.settings",
    ),
    "broker_lite.handlers": ("broker_lite", "exactly_once.crash_points"),
    "broker_lite": ("broker_lite",),
    "offset_store": ("offset_store",),
    "exactly_once": ("offset_store", "exactly_once"),
    "connectors": ("connectors", "exactly_once", "offset_store", "broker_lite.protocol"),
    "jobs": PACKAGES,
}
IMPURE = {"asyncio", "os", "random", "socket", "threading", "time"}


def modules() -> list[str]:
    return sorted(
        ".".join(path.relative_to(PROJECT).with_suffix("").parts)
        for package in PACKAGES
        for path in (PROJECT / package).rglob("*.py")
    )


def imports_of(module: str) -> set[str]:
    path = PROJECT / (module.replace(".", "/") + ".py")
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} imports relatively"
            assert node.module is not None
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    assert not {name.split(".")[0] for name in found} & {*PACKAGES}, f"{module} does not import by way of sparkonce"
    of_users = {name for name in found if name.startswith("sparkonce.") and name.split(".")[1] not in PACKAGES}
    assert not of_users, f"{module} imports {of_users} from where users do, not from its module"
    return {name.removeprefix("sparkonce.") for name in found}


def within(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


@pytest.mark.parametrize("module", modules())
def test_imports_point_one_way(module: str) -> None:
    part = max((part for part in ALLOWED if within(module, part)), key=len)
    ours = {name for name in imports_of(module) if name.split(".")[0] in PACKAGES}
    wrong = {name for name in ours if not any(within(name, allowed) for allowed in ALLOWED[part])}
    assert not wrong, f"{module} may import {ALLOWED[part]} only"


def pure_modules() -> list[str]:
    cores = ("broker_lite.cluster", "broker_lite.controller", "broker_lite.coordinators", "broker_lite.replication")
    pure = [name for name in modules() if any(within(name, core) for core in (*cores, "broker_lite.scheduling"))]
    # TLS needs the files of keys; all else of security takes and gives values, and files through `Storage`.
    return pure + [name for name in modules() if within(name, "broker_lite.security") and not name.endswith(".tls")]


@pytest.mark.parametrize("module", pure_modules())
def test_pure_cores_do_no_input_or_output(module: str) -> None:
    assert not {name.split(".")[0] for name in imports_of(module)} & IMPURE


def test_no_module_grows_out_of_sight() -> None:
    long = {
        module: lines
        for module in modules()
        if (lines := (PROJECT / (module.replace(".", "/") + ".py")).read_text().count("\n")) > 600
    }
    assert not long


def test_no_module_loads_one_that_loads_it() -> None:
    """Neither by way of others; what functions import, and annotations alone need, is loaded later or never."""
    known = {module.removesuffix(".__init__"): module for module in modules()}
    loads = {
        name: {ours for full in loaded_by(module) for ours in needed(full, name, known)} - {name}
        for name, module in known.items()
    }
    TopologicalSorter(loads).prepare()  # raises CycleError, which shows the circle


def loaded_by(module: str) -> Iterator[str]:
    tree = ast.parse((PROJECT / (module.replace(".", "/") + ".py")).read_text())
    for node in top_level(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def needed(imported: str, name: str, known: Mapping[str, str]) -> set[str]:
    """Return the module that ``imported`` is or is in, and the packages around it that are not around ``name`` too."""
    parts = imported.removeprefix("sparkonce.").split(".")
    around = [".".join(parts[:count]) for count in range(1, len(parts) + 1)]
    ours = [each for each in around if each in known]
    return {each for each in ours if each == ours[-1] or not within(name, each)}


def top_level(node: ast.AST) -> Iterator[ast.AST]:
    """Return what runs when a module is loaded."""
    for child in ast.iter_child_nodes(node):
        later = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        never = isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"
        if not later and not never:
            yield child
            yield from top_level(child)

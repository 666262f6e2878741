"""Imports point one way, and the pure cores stay pure."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
SOURCES = PROJECT / "sparkonce"
FOLDERS = ("broker_lite", "connectors", "exactly_once", "jobs", "offset_store", "registry_lite")
PACKAGES = (*FOLDERS, "crash_points", "notebook", "ready_file", "settings", "shipping")

ROW = re.compile(r"\| (`[a-z].*?) \| .* \| (.*?) ?\|")
IMPURE = {"asyncio", "os", "random", "socket", "threading", "time"}


def modules() -> list[str]:
    files = [path for package in PACKAGES if (path := SOURCES / f"{package}.py").is_file()]
    paths = [*files, *(path for folder in FOLDERS for path in (SOURCES / folder).rglob("*.py"))]
    return sorted(".".join(path.relative_to(SOURCES).with_suffix("").parts) for path in paths)


def text_of(module: str) -> str:
    return (SOURCES / (module.replace(".", "/") + ".py")).read_text()


def imports_of(module: str) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(text_of(module))):
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


def table() -> dict[str, list[str]]:
    """Return what ARCHITECTURE.md says that each folder (or module) may import of our own, in the order of its rows."""
    page = (PROJECT / "ARCHITECTURE.md").read_text()
    rows = page[page.index("## The folders") : page.index("## Reading routes")].splitlines()
    cells = [
        [re.findall(r"`([a-z_/.]+)`", cell) for cell in found.groups()] for row in rows if (found := ROW.match(row))
    ]
    return {dotted(part): [dotted(each) for each in imports] for parts, imports in cells for part in parts}


def dotted(path: str) -> str:
    return path.removeprefix("sparkonce/").removesuffix(".py").replace("/", ".")


ALLOWED = table()


@pytest.mark.parametrize("module", modules())
def test_each_folder_imports_what_the_table_says(module: str) -> None:
    part = max((part for part in ALLOWED if within(module, part)), key=len, default=module)
    ours = {name for name in imports_of(module) if name.split(".")[0] in PACKAGES}
    wrong = {name for name in ours if not any(within(name, allowed) for allowed in (part, *ALLOWED.get(part, ())))}
    assert not wrong, f"{module} may import {ALLOWED.get(part)} only"


def test_imports_point_up_in_the_table() -> None:
    parts = list(ALLOWED)
    assert len(parts) > 30
    down = {
        (part, other)
        for place, part in enumerate(parts)
        for name in ALLOWED[part]
        for other in parts[place + 1 :]
        if within(name, other) and not within(part, other)
    }
    assert not down


@pytest.mark.parametrize("part", ALLOWED)
def test_the_table_tells_of_what_is_there(part: str) -> None:
    path = SOURCES / part.replace(".", "/")
    assert path.is_dir() or path.with_suffix(".py").is_file()


MAPS = ("ARCHITECTURE.md", *(f"{package}/README.md" for package in FOLDERS))
ROWS = [
    row
    for page in MAPS
    for row in (PROJECT / page).read_text().split("## Where do I change …")[1].split("\n## ")[0].splitlines()
    if "`" in row
]


@pytest.mark.parametrize("row", ROWS)
def test_the_maps_name_files_that_are_there(row: str) -> None:
    """By their paths, in the folder of one before them in the row or beside that folder, or in the broker's."""
    folders = [PROJECT, PROJECT / "broker_lite"]
    for name in re.findall(r"`([a-z_/0-9.]+(?:\.py|/))`", row):
        places = [folder / name for folder in (*folders, *(folder.parent for folder in folders[2:]))]
        found = next((place for place in places if place.exists()), None)
        assert found is not None, name
        folders.append(found if found.is_dir() else found.parent)


def test_the_list_of_all_crash_points_is_complete() -> None:
    listed = {name.rpartition(".")[0] for name in imports_of("jobs.shared.crash_plans")}
    assert {module for module in modules() if module.endswith("crash_points")} <= listed


def pure_modules() -> list[str]:
    cores = ("broker_lite.cluster", "broker_lite.controller", "broker_lite.coordinators", "broker_lite.replication")
    pure = [name for name in modules() if any(within(name, core) for core in (*cores, "broker_lite.scheduling"))]
    # TLS needs the files of keys; all else of security takes and gives values, and files through `Storage`.
    return pure + [name for name in modules() if within(name, "broker_lite.security") and not name.endswith(".tls")]


@pytest.mark.parametrize("module", pure_modules())
def test_pure_cores_do_no_input_or_output(module: str) -> None:
    assert not {name.split(".")[0] for name in imports_of(module)} & IMPURE


def test_no_module_grows_out_of_sight() -> None:
    long = {module: lines for module in modules() if (lines := text_of(module).count("\n")) > 600}
    assert not long


@pytest.mark.parametrize("module", [name for name in modules() if within(name, "connectors")])
def test_codes_that_a_broker_answers_with_may_be_of_a_later_kafka(module: str) -> None:
    """`ErrorCode(number)` raises ValueError for those; `ErrorCode.of` does not."""
    calls = [node.func for node in ast.walk(ast.parse(text_of(module))) if isinstance(node, ast.Call)]
    assert not [call for call in calls if isinstance(call, ast.Name) and call.id == "ErrorCode"]


def test_no_module_imports_one_that_imports_it() -> None:
    """Neither by way of others, nor in a function, nor for an annotation alone."""
    known = {module.removesuffix(".__init__"): module for module in modules()}
    imported = {
        name: {ours for full in imports_of(module) for ours in needed(full, name, known)} - {name}
        for name, module in known.items()
    }
    TopologicalSorter(imported).prepare()  # raises CycleError, which shows the circle


def needed(imported: str, name: str, known: Mapping[str, str]) -> set[str]:
    """Return the module that ``imported`` is or is in, and the packages around it that are not around ``name`` too."""
    parts = imported.removeprefix("sparkonce.").split(".")
    around = [".".join(parts[:count]) for count in range(1, len(parts) + 1)]
    ours = [each for each in around if each in known]
    return {each for each in ours if each == ours[-1] or not within(name, each)}

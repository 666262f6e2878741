"""Imports point one way, and the pure cores stay pure."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
SOURCES = PROJECT / "sparkonce"
FOLDERS = ("broker_lite", "connectors", "exactly_once", "jobs", "offset_store", "registry_lite")
FILES = sorted(path.stem for path in SOURCES.glob("[a-z]*.py"))
PACKAGES = (*FOLDERS, *FILES, "kafka", "lab")

ROW = re.compile(r"\| (`[a-z].*?) \| .* \| (.*?) ?\|")
IMPURE = {"asyncio", "os", "random", "socket", "threading", "time"}


@cache
def modules() -> list[str]:
    paths = [
        *(SOURCES / f"{name}.py" for name in FILES),
        *(path for folder in (*FOLDERS, "kafka") for path in (SOURCES / folder).rglob("*.py")),
    ]
    names = [path.relative_to(SOURCES) for path in paths]
    names += [path.relative_to(PROJECT) for path in (PROJECT / "lab").rglob("*.py")]
    return sorted(".".join(name.with_suffix("").parts) for name in names)


def root_of(module: str) -> Path:
    return PROJECT if within(module, "lab") else SOURCES


def text_of(module: str) -> str:
    return (root_of(module) / (module.replace(".", "/") + ".py")).read_text()


def statements(node: ast.AST) -> Iterator[ast.stmt]:
    """Walk through statements only, which takes a fifth of the time of walking through all that they are made of."""
    for field in ("body", "orelse", "handlers", "finalbody", "cases"):
        inner = getattr(node, field, ())
        for each in inner if isinstance(inner, list) else ():
            if isinstance(each, ast.stmt):
                yield each
            yield from statements(each)


@cache
def raw_imports_of(module: str) -> frozenset[str]:
    """Return the full names that a module imports; a relative one begins with a dot."""
    found = set()
    for node in statements(ast.parse(text_of(module))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{'.' * node.level}{node.module or ''}.{alias.name}" for alias in node.names}
    return frozenset(found)


def imports_of(module: str) -> set[str]:
    """Return them without ``sparkonce.``; the package ``kafka`` is not our folder of that name."""
    raw = raw_imports_of(module)
    return {re.sub(r"^kafka\b", "kafka-python", name).removeprefix("sparkonce.") for name in raw}


def within(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


def table() -> dict[str, list[str]]:
    """Return which folder (or module) may import which of our own, in the order of the page's rows."""
    rows = (PROJECT / "docs" / "internals" / "folders.md").read_text().splitlines()
    cells = [
        [re.findall(r"`([a-z_/.]+)`", cell) for cell in found.groups()] for row in rows if (found := ROW.match(row))
    ]
    return {dotted(part): [dotted(each) for each in imports] for parts, imports in cells for part in parts}


def dotted(path: str) -> str:
    return path.removeprefix("sparkonce/").removesuffix(".py").replace("/", ".")


ALLOWED = table()


def test_modules_import_by_their_full_names() -> None:
    """Not relatively, not past `sparkonce`, and nothing from where users import it."""
    wrong = {
        module: found
        for module in modules()
        if (
            found := {
                name
                for name in raw_imports_of(module)
                if name.startswith(".")
                or name.split(".")[0] in {*PACKAGES} - {"kafka", "lab"}
                or (name.startswith("sparkonce.") and name.split(".")[1] not in PACKAGES)
            }
        )
    }
    assert not wrong


def test_each_folder_imports_what_the_table_says() -> None:
    assert len(modules()) > 500
    wrong = {}
    for module in modules():
        part = max((part for part in ALLOWED if within(module, part)), key=len, default=module)
        allowed = (part, *ALLOWED.get(part, ()))
        ours = {name for name in imports_of(module) if name.split(".")[0] in PACKAGES}
        if found := {name for name in ours if not any(within(name, each) for each in allowed)}:
            wrong[module] = (found, "but may import", allowed)
    assert not wrong


NAMING = ("pyproject.toml", "sparkonce/__init__.py")


def test_what_the_product_does_not_use_is_not_in_it() -> None:
    """Each installed module is imported or named by one, by pyproject.toml or as public; examples are run by name."""
    installed = [name for name in modules() if not within(name, "lab") and not within(name, "jobs.demo")]
    imported = {around for name in installed for full in imports_of(name) for around in (full, full.rpartition(".")[0])}
    texts = "".join([*map(text_of, installed), *((PROJECT / file).read_text() for file in NAMING)])
    named = set(re.findall(r"[\"\'](?:sparkonce\.)?([a-z_.0-9]+)", texts))
    by_dispatch = ("broker_lite.handlers", "broker_lite.server", "jobs.etl")
    unused = {
        name for name in installed if name not in imported | named and not name.endswith(("__init__", "__main__"))
    }
    assert not [name for name in unused if not any(within(name, part) for part in by_dispatch)]


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


def test_few_folders_lie_between_the_commands_and_the_columns() -> None:
    """A reader of ``connectors`` crosses at most seven of its folders, one import after the other."""
    lengths: dict[str, int] = {}
    for part in (part for part in ALLOWED if within(part, "connectors")):  # in the order of the rows
        others = {
            max((each for each in ALLOWED if within(name, each)), key=len, default=name) for name in ALLOWED[part]
        }
        lengths[part] = 1 + max((lengths.get(other, 0) for other in others - {part}), default=0)
    assert max(lengths.values()) <= 7, lengths


def test_the_table_tells_of_what_is_there() -> None:
    paths = {part: root_of(part) / part.replace(".", "/") for part in ALLOWED}
    assert not [part for part, path in paths.items() if not (path.is_dir() or path.with_suffix(".py").is_file())]


MAPS = ("ARCHITECTURE.md", *(f"{package}/README.md" for package in (*FOLDERS, "lab")))
ROWS = [
    row
    for page in MAPS
    for row in (PROJECT / page).read_text().split("## Where do I change …")[1].split("\n## ")[0].splitlines()
    if "`" in row
]


def test_the_maps_name_files_that_are_there() -> None:
    """By their paths, in the folder of one before them in the row or beside that folder, or in the broker's."""
    assert len(ROWS) > 20
    gone = []
    for row in ROWS:
        folders = [PROJECT, PROJECT / "broker_lite"]
        for name in re.findall(r"`([a-z_/0-9.]+(?:\.py|/))`", row):
            places = [folder / name for folder in (*folders, *(folder.parent for folder in folders[2:]))]
            found = next((place for place in places if place.exists()), None)
            if found is None:
                gone.append((name, row))
            else:
                folders.append(found if found.is_dir() else found.parent)
    assert not gone


def test_the_list_of_all_crash_points_is_complete() -> None:
    listed = {name.rpartition(".")[0] for name in imports_of("lab.crash_plans")}
    assert {module for module in modules() if module.endswith("crash_points")} <= listed


def pure_modules() -> list[str]:
    cores = ("broker_lite.cluster", "broker_lite.controller", "broker_lite.coordinators", "broker_lite.replication")
    pure = [name for name in modules() if any(within(name, core) for core in (*cores, "broker_lite.scheduling"))]
    # TLS needs the files of keys; all else of security takes and gives values, and files through `Storage`.
    return pure + [name for name in modules() if within(name, "broker_lite.security") and not name.endswith(".tls")]


def test_pure_cores_do_no_input_or_output() -> None:
    impure = {name: {each.split(".")[0] for each in imports_of(name)} & IMPURE for name in pure_modules()}
    assert len(impure) > 50
    assert not {name: found for name, found in impure.items() if found}


def test_no_object_is_asked_what_it_can_do() -> None:
    """A base class says it, with the answer of most: a reader of the caller need not know who implements what."""
    assert not [module for module in modules() if "runtime_checkable" in text_of(module)]


def test_classes_are_called_by_the_noun_of_what_they_hold() -> None:
    """Several things are a place, and several a plan; a record is Kafka's."""
    wrong = {
        module: re.findall(r"^class (?:Place|Plan|Record)\b", text_of(module), re.MULTILINE) for module in modules()
    }
    assert {module for module, found in wrong.items() if found} == {"kafka.protocol.records"}


def test_no_module_grows_out_of_sight() -> None:
    long = {module: lines for module in modules() if (lines := text_of(module).count("\n")) > 600}
    assert not long


def test_codes_that_a_broker_answers_with_may_be_of_a_later_kafka() -> None:
    """`ErrorCode(number)` raises ValueError for those; `ErrorCode.of` does not."""
    wrong = [
        f"{module}:{node.lineno}"
        for module in modules()
        if within(module, "connectors") and "ErrorCode(" in text_of(module)
        for node in ast.walk(ast.parse(text_of(module)))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "ErrorCode"
    ]
    assert not wrong


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


RETRYING = {"kafka.client.retry", "connectors.kafka_source.reading"}
"""The loop of all retries, and one that yields what it has read before it tries again."""


def test_there_is_one_loop_of_retries() -> None:
    """No other loop catches errors and sleeps. Where brokers are started, or pages ask again, other rules hold."""
    clients = ("kafka", "connectors", "exactly_once", "offset_store", "jobs.cli", "registry_lite")
    within_clients = [each for each in modules() if any(within(each, package) for package in clients)]
    assert {each for each in within_clients if "time.sleep(" in text_of(each) and retries(each)} == RETRYING


def retries(module: str) -> bool:
    loops = [node for node in ast.walk(ast.parse(text_of(module))) if isinstance(node, ast.For | ast.While)]
    return any(
        any(isinstance(node, ast.Try) for node in ast.walk(loop)) and "time.sleep(" in ast.unparse(loop)
        for loop in loops
    )


def test_each_constant_is_used() -> None:
    """A name that is nowhere but where it is defined is a leftover."""
    texts = {module: text_of(module) for module in modules()}
    tests = (file.read_text() for file in (PROJECT / "tests").rglob("*.py"))
    words = Counter(word for text in (*texts.values(), *tests) for word in re.findall(r"\w+", text))
    constant = re.compile(r"^(_?[A-Z][A-Z0-9_]+)(?:: .+)? = ", re.MULTILINE)
    found = [
        f"{module}.{name}" for module, text in texts.items() for name in constant.findall(text) if words[name] == 1
    ]
    assert found == []

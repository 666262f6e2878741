"""docs/python_api.md: the public names of `sparkonce`, with types, from signatures and docstrings."""

from __future__ import annotations

import enum
import inspect
import re
import textwrap
from collections.abc import Iterator
from typing import Any

import sparkonce

_HEAD = """\
# Python API

<!-- Generated from the code: python -m lab.pages . -->

All that `sparkonce` exports; the package has type hints (`py.typed`). Each name is loaded when it is first used.
Everything else, such as `sparkonce.connectors`, may change from one version to the next.
"""

_GROUPS = {
    "Sessions and queries": (
        "spark_session",
        "register",
        "read_stream",
        "write_stream",
        "table_path",
        "source_options",
        "delta_sink_options",
        "kafka_sink_options",
        "mark",
        "explain",
        "Guarantee",
    ),
    "Writers for foreachBatch": ("MergeWriter", "AppendWriter", "ForeachBatch", "SqlResult", "RowsOnly"),
    "Ingestion": ("ingest", "IngestTable", "Ingestion"),
    "Lag and counts": ("LagListener", "QueryLag", "SourceLag", "PartitionLag", "BatchCounts"),
    "Offsets and history": ("open_store", "history_frame", "history_arrow"),
    "Broker and registry for tests": ("EmbeddedBroker", "EmbeddedCluster", "EmbeddedRegistry", "BrokerConfig"),
}
"""Groups of names; names in no group come last: errors."""

_WIDTH, _LONGEST = 100, 1200
"""Signatures longer than this, in characters, have a line for each parameter, or are left to another page."""


def markdown() -> str:
    """Return the page."""
    grouped = {name for names in _GROUPS.values() for name in names}
    rest = tuple(name for name in sparkonce.__all__ if name not in grouped and name != "__version__")
    parts = [_HEAD]
    for title, names in {**_GROUPS, "Errors": rest}.items():
        parts.append(f"\n## {title}\n")
        parts += [_entry(name, getattr(sparkonce, name)) for name in names]
    return "".join(parts)


def _entry(name: str, value: Any) -> str:
    if not inspect.isclass(value):
        return f"\n### {name}\n\n{_head(name, value)}\n\n{_text(value)}\n"
    if issubclass(value, Exception):
        bases = value.__bases__[0].__name__
        return f"\n### {name}\n\nA `{bases}`. {_text(value)} [What to do](errors.md)\n"
    if issubclass(value, enum.Enum):
        words = "".join(f"- `{name}.{each.name}`: `{each.value}`\n" for each in value)
        return f"\n### {name}\n\n{_text(value)}\n\n{words}"
    members = "".join(f"- {textwrap.indent(member, '  ').strip()}\n" for member in _members(value))
    return f"\n### {name}\n\n{_head(name, value)}\n\n{_text(value)}\n" + (f"\nMembers:\n\n{members}" if members else "")


def _head(name: str, value: Any) -> str:
    signature = _signature(value)
    if len(signature) > _LONGEST:
        return "Its arguments are [the settings of the broker](broker_settings.md), with underscores in their names."
    if len(signature) > _WIDTH:
        signature = re.sub(r"^\(|, (?=\*|\w+: )", lambda found: found[0].strip() + "\n    ", signature)
        signature = re.sub(r"\)(?= ->|$)(?!.*\)( ->|$))", ",\n)", signature)
    return f"```python\n{name}{signature}\n```"


def _members(value: type) -> Iterator[str]:
    """Describe the public methods and properties of a class and of its base classes of ours, without interfaces."""
    classes = [
        each for each in value.__mro__ if each.__module__.startswith("sparkonce") and not inspect.isabstract(each)
    ]
    for name, member in inspect.getmembers_static(value):
        ours = any(name in each.__dict__ for each in classes)
        if name.startswith("_") or not ours:
            continue
        if isinstance(member, property):
            yield f"`{name}`: {_text(member)}"
        elif isinstance(member, classmethod | staticmethod):
            yield f"`{name}{_signature(member.__func__)}`: {_text(member.__func__)}"
        elif inspect.isfunction(member):
            yield f"`{name}{_signature(member)}`: {_text(member)}"


class _Words(str):
    """An annotation as written: `inspect` would quote it."""

    def __repr__(self) -> str:
        return str(self)


def _signature(value: Any) -> str:
    signature = inspect.signature(value)
    parameters = [
        each.replace(annotation=_words(each.annotation), default=_default(each.default))
        for each in signature.parameters.values()
        if each.name not in ("self", "cls")
    ]
    line = str(signature.replace(parameters=parameters, return_annotation=_words(signature.return_annotation)))
    return line.removesuffix(" -> None")


def _words(annotation: Any) -> Any:
    if annotation is inspect.Parameter.empty:
        return annotation
    return _Words(annotation if isinstance(annotation, str) else inspect.formatannotation(annotation))


def _default(value: Any) -> Any:
    """Shorten defaults that would show a memory address, or a whole class of settings."""
    if value is inspect.Parameter.empty or isinstance(value, str | int | float | bool | tuple | None.__class__):
        return value
    if isinstance(value, enum.Enum):
        return _Words(f"{type(value).__name__}.{value.name}")
    return _Words("…")


def _text(value: Any) -> str:
    """Return the docstring as Markdown: its sections as lists."""
    text = re.sub(r"``([^`]+)``", r"`\1`", inspect.getdoc(value) or "")
    text = re.sub(r":\w+:`~?([^`]+)`", r"`\1`", text)
    return re.sub(r"^(Args|Raises|Returns|Example):\n((?:(?:    .*)?\n?)+)", _section, text, flags=re.MULTILINE).strip()


def _section(found: re.Match[str]) -> str:
    title, text = found[1], textwrap.dedent(found[2]).strip()
    if title == "Example":
        return f"```pycon\n{text}\n```\n\n"
    if title == "Returns":
        return f"Returns: {text}\n\n"
    items = re.sub(r"^(\S[^:]*): ", r"- `\1`: ", text, flags=re.MULTILINE)
    return f"{'Arguments' if title == 'Args' else title}:\n\n{re.sub('^    ', '  ', items, flags=re.MULTILINE)}\n\n"

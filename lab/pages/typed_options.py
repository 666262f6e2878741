"""Generates connectors/reference/typed_options.py: the names of all options as types, for editors and mypy."""

from __future__ import annotations

from sparkonce.connectors.reference.tables import REFERENCES, Reference, is_used
from sparkonce.settings import Setting

HEAD = '''"""The options as typed dictionaries: an editor completes names and values, and mypy finds typing errors.

Made from the declarations, by `python -m lab.pages .`. The functions check what they are given at once, as the
format would do later, and return what PySpark's ``options(**…)`` takes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypedDict

from sparkonce.connectors.delta_sink.options import SinkOptions
from sparkonce.connectors.kafka_sink.options import KafkaSinkOptions
from sparkonce.connectors.kafka_source.options import SourceOptions
from sparkonce.connectors.reference.hints import checked

'''
TAIL = '''

def source_options(options: KafkaSource) -> dict[str, str]:
    """Check options of the Kafka source.

    Example:
        >>> source_options({"kafka.bootstrap.servers": "localhost:9092", "subscribe": "flights", "minPartitions": 8})
        {'kafka.bootstrap.servers': 'localhost:9092', 'subscribe': 'flights', 'minPartitions': '8'}

    Raises:
        OptionError: for what cannot work.
    """
    texts = _texts(options)
    checked(SourceOptions.read, texts)
    return texts


def kafka_sink_options(options: KafkaSink) -> dict[str, str]:
    """Check options of the Kafka sink, for streams.

    Raises:
        OptionError: for what cannot work.
    """
    texts = _texts(options)
    checked(KafkaSinkOptions.read, texts)
    return texts


def delta_sink_options(options: DeltaSink) -> dict[str, str]:
    """Check options of the Delta sink; here ``path`` or ``table`` is one of them, and ``start()`` takes none.

    Raises:
        OptionError: for what cannot work.
    """
    texts = _texts(options)
    checked(SinkOptions.read_with_name, texts)
    return texts


def _texts(options: Mapping[str, object]) -> dict[str, str]:
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in options.items()}
'''
_NAMES = {"source": "KafkaSource", "kafka-sink": "KafkaSink", "delta-sink": "DeltaSink"}


def typed_module() -> str:
    """Return the module's text. Options that several formats have are in a dictionary of their own, once."""
    tables = {_NAMES[reference.name]: _types(reference) for reference in REFERENCES.values()}
    parts: dict[tuple[str, ...], dict[str, str]] = {}
    for key, kind in dict.fromkeys(item for table in tables.values() for item in table.items()):
        owners = tuple(name for name, table in tables.items() if table.get(key) == kind)
        parts.setdefault(owners, {})[key] = kind
    texts = [_dictionary(_part(owners), types) for owners, types in parts.items()]
    for reference in REFERENCES.values():
        name = _NAMES[reference.name]
        bases = ", ".join(_part(owners) for owners in parts if name in owners)
        texts.append(f'class {name}({bases}):\n    """{reference.title}."""')
    return HEAD + "\n\n\n".join(texts) + "\n" + TAIL


def _part(owners: tuple[str, ...]) -> str:
    if len(owners) == len(_NAMES):
        return "_Common"
    return f"_{'And'.join(owners)}" if len(owners) > 1 else f"_Only{owners[0]}"


def _types(reference: Reference) -> dict[str, str]:
    entries = {entry.name: entry for entry in reference.entries()}
    if reference.settings is None:  # its Kafka settings are those of the others
        for other in REFERENCES.values():
            entries |= {entry.name: entry for entry in other.entries() if other.settings and _is_setting(entry)}
    return {entry.name: _type(entry) for entry in entries.values() if is_used(entry) and not entry.name.endswith("*")}


def _dictionary(name: str, types: dict[str, str]) -> str:
    if all(key.isidentifier() for key in types):
        return "\n".join([f"class {name}(TypedDict, total=False):", *(f"    {key}: {types[key]}" for key in types)])
    keys = "\n".join(f'        "{key}": {kind},' for key, kind in types.items())
    return f'{name} = TypedDict(\n    "{name}",\n    {{\n{keys}\n    }},\n    total=False,\n)'


def _is_setting(entry: Setting) -> bool:
    return entry.name.startswith("kafka.")


def _type(entry: Setting) -> str:
    if entry.words == ("true", "false"):
        return "bool"
    if entry.form.startswith("whole number"):
        return "int"
    counted = entry.words and "|".join(entry.words) == entry.form
    return f"Literal[{', '.join(f'{chr(34)}{word}{chr(34)}' for word in entry.words)}]" if counted else "str"

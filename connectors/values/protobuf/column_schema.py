"""A Protobuf schema made from a column's type, and a check that it keeps the numbers of the previous one.

Fields are numbered in the order of the columns. So a column may be added at the end; another order assigns a number to
another field, which a registry accepts if the types are the same.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from google.protobuf.descriptor import Descriptor
from pyspark.sql import types as t

from sparkonce.connectors.values.protobuf.schema import ProtobufSchemaError, messages_of

ROOT = "Value"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SCALARS: dict[type[t.DataType], str] = {
    t.BooleanType: "bool",
    t.ByteType: "int32",
    t.ShortType: "int32",
    t.IntegerType: "int32",
    t.LongType: "int64",
    t.FloatType: "float",
    t.DoubleType: "double",
    t.StringType: "string",
    t.BinaryType: "bytes",
    t.TimestampType: "google.protobuf.Timestamp",
}
_KEYS = (t.StringType, t.ByteType, t.ShortType, t.IntegerType, t.LongType, t.BooleanType)
_IMPORT = 'import "google/protobuf/timestamp.proto";'
_WAYS_OUT: dict[type[t.DataType], str] = {
    t.DecimalType: "cast it to STRING, or to DOUBLE if it may be rounded",
    t.DateType: "cast it to STRING or TIMESTAMP",
    t.TimestampNTZType: "cast it to STRING or TIMESTAMP",
}


def schema_for(kind: t.DataType, name: str = ROOT) -> str:
    """Return a schema for a column, as the text of a .proto file with one message of a name, which may have a package.

    Fields are ``optional``, so that a null is not 0. Their numbers are their positions in the column.

    Raises:
        ProtobufSchemaError: if no schema can represent it; the message says what to do.
    """
    package, _, message = name.rpartition(".")
    if not all(_NAME.fullmatch(each) for each in name.split(".")):
        raise ProtobufSchemaError(f"a message cannot be called {name!r}: letters, digits, _ and . only")
    if not isinstance(kind, t.StructType):
        raise ProtobufSchemaError(
            f"the value: {kind.simpleString()} is no message of Protobuf, which has fields: put it into a struct"
        )
    lines = _message(kind, message, "", ())
    head = ['syntax = "proto3";', *([f"package {package};"] if package else [])]
    imports = [_IMPORT] if any(_SCALARS[t.TimestampType] in line for line in lines) else []
    return "\n".join([*head, *imports, *lines]) + "\n"


def message_name(subject: str) -> str:
    """Return a name for the message of a subject: ``DeparturesValue`` for ``departures-value``."""
    return _camel(subject) or ROOT


def check_numbers(before: Descriptor, made: Descriptor) -> None:
    """Check that a schema made by `schema_for` keeps the fields of the version before it at their numbers.

    Raises:
        ProtobufSchemaError: a number belongs to another field, so that readers with the older schema would read wrong
            columns.
    """
    older = {each.full_name: each for each in messages_of(before.file)}
    for message in messages_of(made.file):
        if message.full_name in older:
            _check_fields(older[message.full_name], message)


def _check_fields(known: Descriptor, message: Descriptor) -> None:
    """Check one message, and those of its fields, whatever their names: a new column may change these."""
    for field in message.fields:
        moved, there = known.fields_by_name.get(field.name), known.fields_by_number.get(field.number)
        if (moved and moved.name) != (there and there.name):
            told = f"has {there.name}" if there is not None else "has no field"
            raise ProtobufSchemaError(
                f"{message.full_name}: the column's field {field.name} would have the number {field.number}, at "
                f"which the subject's latest schema {told}: readers would take one column for another. Keep the "
                "order of columns and add new ones at the end, or set a schema of your own"
            )
        if there is not None and there.message_type is not None and field.message_type is not None:
            _check_fields(there.message_type, field.message_type)


def _message(kind: t.StructType, name: str, where: str, around: Sequence[str]) -> list[str]:
    """Return the lines of a message for a struct; its own messages are in it, before their fields."""
    if not kind.fields:
        raise ProtobufSchemaError(
            f"{where or 'the value'}: a struct without fields would not be read again: leave it out"
        )
    around = (*around, name)
    entries = {_entry(each.name) for each in kind if isinstance(each.dataType, t.MapType)}
    taken = {*kind.names, *around, *entries}
    lines = [f"message {name} {{"]
    for number, each in enumerate(kind, 1):
        path = f"{where}.{each.name}".lstrip(".")
        if not _NAME.fullmatch(each.name):
            raise ProtobufSchemaError(
                f"{path}: a field of Protobuf cannot have this name, only letters, digits and _: rename the column"
            )
        below = _struct_in(each.dataType)
        named = ""
        if below is not None:
            named = _camel(each.name) or "Message"
            while named in taken:
                named += "_"
            taken.add(named)
            lines += [f"  {line}" for line in _message(below, named, path, around)]
        lines.append(f"  {_type(each.dataType, named, path)} {each.name} = {number};")
    return [*lines, "}"]


def _struct_in(kind: t.DataType) -> t.StructType | None:
    """Return the struct in a field's values, elements or map's values."""
    if isinstance(kind, t.ArrayType):
        kind = kind.elementType
    elif isinstance(kind, t.MapType):
        kind = kind.valueType
    return kind if isinstance(kind, t.StructType) else None


def _type(kind: t.DataType, named: str, where: str) -> str:
    """Return the type of a field, with its label; ``named`` is the message for a struct in it."""
    if isinstance(kind, t.ArrayType):
        return f"repeated {_single(kind.elementType, named, f'{where}.element')}"
    if isinstance(kind, t.MapType):
        if not isinstance(kind.keyType, _KEYS):
            raise ProtobufSchemaError(
                f"{where}: a map's keys are STRING, BOOLEAN or whole numbers in Protobuf, found "
                f"{kind.keyType.simpleString()}: cast them to STRING"
            )
        value = _single(kind.valueType, named, f"{where}.value")
        return f"map<{_SCALARS[type(kind.keyType)]}, {value}>"
    single = _single(kind, named, where)
    return single if named else f"optional {single}"


def _single(kind: t.DataType, named: str, where: str) -> str:
    if named:
        return named
    if type(kind) in _SCALARS:
        return _SCALARS[type(kind)]
    way_out = _WAYS_OUT.get(type(kind), "cast it, or leave it out")
    if isinstance(kind, t.ArrayType | t.MapType):
        way_out = "put it into a struct, since arrays and maps cannot be in each other there"
    raise ProtobufSchemaError(f"{where}: {kind.simpleString()} has no type of Protobuf: {way_out}")


def _camel(text: str) -> str:
    """Return text as the name of a message, beginning with a capital letter; empty if it has no letters or digits."""
    words = re.findall(r"[A-Za-z0-9]+", text)
    made = "".join(word[0].upper() + word[1:] for word in words)
    return f"M{made}" if made[:1].isdigit() else made


def _entry(field: str) -> str:
    """Return the name that the compiler gives to the entries of a map."""
    return "".join(word[:1].upper() + word[1:] for word in field.split("_")) + "Entry"

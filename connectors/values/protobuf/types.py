"""The Spark types of Protobuf's messages, as in ``from_protobuf``: Spark, SchemaConverters.scala.

What differs: every column may be null, since a value that does not parse has null in all; a Duration is a BIGINT of
microseconds, since tables cannot hold intervals; wrappers of google/protobuf/wrappers.proto become their contents.
"""

from __future__ import annotations

from dataclasses import dataclass

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from pyspark.sql import types as t

from sparkonce.connectors.values.protobuf.schema import ProtobufSchemaError

F = FieldDescriptor
TIMESTAMP, DURATION = "google.protobuf.Timestamp", "google.protobuf.Duration"
WRAPPERS = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Bool", "Int32", "UInt32", "Int64", "UInt64", "Float", "Double", "String", "Bytes")
)
_SIGNED: dict[int, type[t.DataType]] = {
    F.TYPE_INT32: t.IntegerType,
    F.TYPE_SINT32: t.IntegerType,
    F.TYPE_SFIXED32: t.IntegerType,
    F.TYPE_UINT32: t.IntegerType,
    F.TYPE_FIXED32: t.IntegerType,
    F.TYPE_INT64: t.LongType,
    F.TYPE_SINT64: t.LongType,
    F.TYPE_SFIXED64: t.LongType,
    F.TYPE_UINT64: t.LongType,
    F.TYPE_FIXED64: t.LongType,
    F.TYPE_BOOL: t.BooleanType,
    F.TYPE_FLOAT: t.FloatType,
    F.TYPE_DOUBLE: t.DoubleType,
    F.TYPE_STRING: t.StringType,
    F.TYPE_BYTES: t.BinaryType,
    F.TYPE_ENUM: t.StringType,
}
OPTION = "recursiveFieldMaxDepth"
MAX_FIELDS = 10_000
"""The maximal number of fields, a message counted at each use: a schema of one page may have billions."""
UNSIGNED_LONG = t.DecimalType(20, 0)


@dataclass(frozen=True, slots=True)
class Choices:
    """The options of ``from_protobuf``."""

    upcast_unsigned: bool = False
    """``upcast.unsigned.ints``: 32 unsigned bits are BIGINT, 64 are DECIMAL(20,0), fixed ones included (Spark leaves
    those signed). Otherwise large numbers are negative, as in Java."""
    unwrap_wrappers: bool = True
    """``unwrap.primitive.wrapper.types``, which is false there: an Int32Value is an INT that may be null."""
    enums_as_ints: bool = False
    """``enums.as.ints``"""


def spark_type(
    message: Descriptor,
    choices: Choices | None = None,
    most_within: int = 0,
    too_large: str = f"set a smaller {OPTION}",
) -> t.StructType:
    """Return the type of the column for a message.

    Fields whose messages have no fields are left out, as in Spark. With ``most_within``, a message is nested at most so
    many times, the outermost counted; deeper ones are left out, as with Spark's
    ``recursive.fields.max.depth``; ``too_large`` is the end of the error if that has too many fields.

    Raises:
        ProtobufSchemaError: no column can represent it: it contains itself, or has no fields, or too many.
    """
    found = _Types(choices or Choices(), most_within, too_large).message(message, (), "")
    if found is None:
        raise ProtobufSchemaError(f"the message {message.full_name} has no fields, which no column can hold")
    return found


def is_map(field: FieldDescriptor) -> bool:
    """Return whether a field is a map."""
    return field.message_type is not None and field.message_type.GetOptions().map_entry


class _Types:
    def __init__(self, choices: Choices, most_within: int, too_large: str) -> None:
        self._choices, self._most_within, self._too_large = choices, most_within, too_large
        self._fields = 0

    def message(self, message: Descriptor, around: tuple[str, ...], where: str) -> t.StructType | None:
        """Return the type of a message within others; None if it has no fields, or is too deep within itself."""
        times = around.count(message.full_name)
        if times and not self._most_within:
            raise ProtobufSchemaError(
                f"{where}: {message.full_name} contains itself, which no column can hold. Set {OPTION} to the number "
                "of times that it may be within itself, itself counted: what is deeper is left out"
            )
        if times and times >= self._most_within:
            return None
        fields = []
        for field in message.fields:
            path = f"{where}.{field.name}" if where else field.name
            kind = self._field(field, (*around, message.full_name), path)
            if kind is not None:
                fields.append(t.StructField(field.name, kind))
        return t.StructType(fields) if fields else None

    def _field(self, field: FieldDescriptor, around: tuple[str, ...], where: str) -> t.DataType | None:
        self._fields += 1
        if self._fields > MAX_FIELDS:
            raise ProtobufSchemaError(
                f"{where}: the message has more than {MAX_FIELDS:,} fields, which no column can hold"
                + (f"; {self._too_large}" if self._most_within else "")
            )
        if is_map(field):
            key, value = (self._single(field.message_type.fields_by_number[at], around, where) for at in (1, 2))
            return None if key is None or value is None else t.MapType(key, value)
        single = self._single(field, around, where)
        return t.ArrayType(single) if single is not None and field.is_repeated else single

    def _single(self, field: FieldDescriptor, around: tuple[str, ...], where: str) -> t.DataType | None:
        if field.type in (F.TYPE_MESSAGE, F.TYPE_GROUP):
            name = field.message_type.full_name
            if name == TIMESTAMP:
                return t.TimestampType()
            if name == DURATION:
                return t.LongType()
            if name in WRAPPERS and self._choices.unwrap_wrappers:
                return self._single(field.message_type.fields_by_number[1], around, where)
            return self.message(field.message_type, around, where)
        if field.type == F.TYPE_ENUM and self._choices.enums_as_ints:
            return t.IntegerType()
        if self._choices.upcast_unsigned and field.type in (F.TYPE_UINT32, F.TYPE_FIXED32):
            return t.LongType()
        if self._choices.upcast_unsigned and field.type in (F.TYPE_UINT64, F.TYPE_FIXED64):
            return UNSIGNED_LONG
        return _SIGNED[field.type]()

"""Schemas of Protobuf, as text or as a serialized descriptor, and what they refer to, as one set of descriptors.

Google's compiler (package ``grpcio-tools``) reads the text, in a separate process: a crash must not end
ours, and only there can its messages be captured. One run takes about 60 ms; equal schemas are compiled once.

This module imports nothing of this project: the embedded registry uses it, too.
"""

from __future__ import annotations

import base64
import binascii
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

MAIN = "schema.proto"
"""The file name of a schema's text."""
TIMEOUT_S = 60.0
COMPILED_SCHEMAS = 256
"""Descriptor sets that are kept."""
_IMPORT = re.compile(r'\bimport\s+(?:public\s+|weak\s+|option\s+)?(["\'])(.+?)\1')
_MAP_ENTRY = re.compile(r"\boption\s+map_entry\s*=\s*true\s*;")
_ENTRY_MARK = "sparkonce_map_entry"
"""A reserved name in place of an option that the compiler does not accept in text."""
_LOG_LINE = re.compile(r"WARNING: All log messages|[IW]\d{4} ")
"""Log output of the compiler's libraries, which is no error."""
_MODULES = {
    **{f"confluent/{name}": f"confluent_kafka.schema_registry.confluent.{name}" for name in ("type", "types")},
    "confluent": "confluent_kafka.schema_registry.confluent",
    "google/type": "google.type",
}
"""Folders of files that any schema may import, as Confluent's registry lets it: the package that has each."""
References = Sequence[tuple[str, str]]
"""(name, schema) of each schema that one refers to, directly or not."""


def descriptor_set(schema: str, references: References = ()) -> FileDescriptorSet:
    """Return the descriptors of a schema and of all that it needs, each after those that it imports, it last.

    Args:
        schema: the text of a .proto file, or a FileDescriptorProto in base64, as Confluent's clients register it.
        references: what it imports, under the names by which it is imported, each in one of these two forms.

    Raises:
        ValueError: it is no schema; the message is the compiler's.
        ModuleNotFoundError: the packages of the extra ``registry`` are not installed.
    """
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    return FileDescriptorSet.FromString(_compiled(schema, tuple(references)))


def from_base64(schema: str) -> FileDescriptorProto | None:
    """Return the descriptor that a schema in base64 is; None if it is a text."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.message import DecodeError

    try:
        found = FileDescriptorProto.FromString(base64.b64decode(schema.strip(), validate=True))
    except (binascii.Error, DecodeError, ValueError):
        return None
    return found if found.ByteSize() else None


@lru_cache(COMPILED_SCHEMAS)
def _compiled(schema: str, references: tuple[tuple[str, str], ...]) -> bytes:
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    given = from_base64(schema)
    # The compiler would read other names as options: its error about @FILE shows that file's contents.
    name = MAIN if given is None or not _is_file_name(given.name) else given.name
    main = name if given is None else _free_name(name, {each for each, _ in references})
    texts: dict[str, str] = {}
    known = FileDescriptorSet()
    for name, each in (*references, (main, schema)):
        found = from_base64(each)
        if found is None:
            texts[name] = each
        else:
            found.name = name
            known.file.append(found)
    imports = {name for text in texts.values() for _, name in _IMPORT.findall(text)}
    _add_common(imports | {name for each in known.file for name in each.dependency}, known, texts)
    marked = {name: _MAP_ENTRY.sub(f'reserved "{_ENTRY_MARK}";', text) for name, text in texts.items()}
    with tempfile.TemporaryDirectory(prefix="sparkonce-proto-") as folder:
        compiled = _run(Path(folder), main, marked, known.SerializeToString())
    return compiled if marked == texts else _with_map_entries(compiled)


def _with_map_entries(compiled: bytes) -> bytes:
    """Return descriptors with maps' entries in place of the messages that are marked as such.

    Until 2024 Confluent's clients for Java registered maps in this form: a repeated message with the option map_entry.
    """
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    found = FileDescriptorSet.FromString(compiled)
    waiting = [message for file in found.file for message in file.message_type]
    for message in waiting:
        waiting += message.nested_type
        if _ENTRY_MARK in message.reserved_name:
            message.reserved_name.remove(_ENTRY_MARK)
            message.options.map_entry = True
    return bytes(found.SerializeToString())


def _free_name(name: str, taken: set[str]) -> str:
    return f"main/{name}" if name in taken else name


def _add_common(names: set[str], known: FileDescriptorSet, texts: Mapping[str, str]) -> None:
    """Add files that any schema may import; Google's well-known types are on the compiler's own path."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    have = {*texts, *(each.name for each in known.file)}
    waiting = sorted(names)
    for name in waiting:
        package = _MODULES.get(name.rpartition("/")[0])
        if name in have or package is None:
            continue
        have.add(name)
        module = f"{package}.{name.rpartition('/')[2].removesuffix('.proto')}_pb2"
        try:
            found = FileDescriptorProto.FromString(import_module(module).DESCRIPTOR.serialized_pb)
        except ImportError:
            continue  # the compiler reports the missing file
        known.file.append(found)
        waiting += found.dependency


def _run(folder: Path, main: str, texts: Mapping[str, str], known: bytes) -> bytes:
    import grpc_tools

    for name, text in texts.items():
        _write(folder / "in", name, text)
    (folder / "in").mkdir(exist_ok=True)
    (folder / "known.pb").write_bytes(known)
    well_known = Path(str(grpc_tools.__file__)).with_name("_proto")
    command = [
        sys.executable,
        "-P",
        "-m",
        "grpc_tools.protoc",
        f"-I{folder / 'in'}",
        f"-I{well_known}",
        "--include_imports",
    ]
    command += [f"--descriptor_set_in={folder / 'known.pb'}", f"--descriptor_set_out={folder / 'out.pb'}", main]
    try:
        ended = subprocess.run(command, capture_output=True, timeout=TIMEOUT_S, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        raise ValueError(f"the compiler of Protobuf did not end in {TIMEOUT_S:.0f} s") from None
    if ended.returncode != 0:
        lines = ended.stderr.decode(errors="replace").replace(f"{folder / 'in'}/", "").splitlines()
        told = "; ".join(line for line in lines if not _LOG_LINE.match(line))
        raise ValueError(told or f"the compiler of Protobuf ended with status {ended.returncode}")
    return (folder / "out.pb").read_bytes()


def _is_file_name(name: str) -> bool:
    """Return whether a name is a file's below a folder, and not another kind of argument."""
    return (
        name.isprintable() and "\\" not in name and name[:1] not in "-@" and not {"", ".", ".."} & set(name.split("/"))
    )


def _write(folder: Path, name: str, text: str) -> None:
    """Write a file that can be imported. Raises ValueError if its name is not one of a file in the folder."""
    if not _is_file_name(name):
        raise ValueError(f"a file of Protobuf cannot be imported by the name {name!r}")
    path = folder / name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except (OSError, UnicodeEncodeError) as error:
        raise ValueError(f"a file of Protobuf cannot be imported by the name {name!r}: {error}") from None

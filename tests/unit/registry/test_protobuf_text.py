"""Schemas of Protobuf compiled to descriptors, from text and from base64."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from sparkonce.connectors.schema_registry.protobuf_text import MAIN, descriptor_set, from_base64
from tests.cases import each_case

OTHER = """
syntax = "proto3";
package x;
import "google/protobuf/timestamp.proto";
import 'google/type/money.proto';
import public "confluent/type/decimal.proto";
message A {
  google.protobuf.Timestamp at = 1;
  google.type.Money price = 2;
}
"""
TEXT = """
syntax = "proto3";
import "folder/other.proto";
message B {
  x.A a = 1;
  confluent.type.Decimal d = 2;
}
"""


def names(schema: str, *references: tuple[str, str]) -> list[str]:
    return [each.name for each in descriptor_set(schema, references).file]


def in_base64(file: FileDescriptorProto) -> str:
    return base64.b64encode(file.SerializeToString()).decode()


def test_a_text_with_what_it_imports() -> None:
    found = names(TEXT, ("folder/other.proto", OTHER))
    assert found[-2:] == ["folder/other.proto", MAIN]
    assert {"google/protobuf/timestamp.proto", "google/type/money.proto", "confluent/type/decimal.proto"} < {*found}


def test_descriptors_in_base64_mean_the_same_as_texts() -> None:
    files = descriptor_set(TEXT, [("folder/other.proto", OTHER)]).file
    main, other = files[-1], files[-2]
    for schema in (TEXT, in_base64(main)):
        for reference in (OTHER, in_base64(other)):
            assert list(descriptor_set(schema, [("folder/other.proto", reference)]).file) == list(files)


def test_editions_and_proto2() -> None:
    assert descriptor_set('edition = "2023"; message A { int32 a = 1; }').file[-1].edition > 0
    assert descriptor_set("message A { optional group B = 1 { required int32 b = 2; } }").file[-1].syntax == ""


MAPS = """
syntax = "%s";
package p;
message M {
  message Inner { %s x.Tag tag = 1; }
  %s
}
"""
TAGS = 'syntax = "proto3"; package x; message Tag { map<int64, string> names = 1; }'
TAGS_WITH_ENTRIES = """
syntax = "proto3"; package x; message Tag { repeated .x.Tag.NamesEntry names = 1;
message NamesEntry { option map_entry = true; int64 key = 1; string value = 2; } }
"""


@pytest.mark.parametrize(("syntax", "label"), [("proto2", "optional"), ("proto3", "")])
def test_maps_as_clients_for_java_have_registered_them(syntax: str, label: str) -> None:
    entry = f"message MEntry {{ option map_entry=true; {label} string key = 1; {label} Inner value = 2; }}"
    found = []
    for tags, member in (
        (TAGS, "map<string, Inner> m = 1;"),
        (TAGS_WITH_ENTRIES, f"repeated .p.M.MEntry m = 1; {entry}"),
    ):
        text = (MAPS % (syntax, label, member)).replace("package p;", 'package p; import "tags.proto";')
        found.append(descriptor_set(text, [("tags.proto", tags)]))
    assert [file.message_type[0].nested_type[-1].options.map_entry for file in found[1].file] == [True, True]
    assert found[0] == found[1]


@each_case(
    ("text", "told"),
    [
        ("message {", "schema.proto:1:9: Expected message name."),
        ('syntax = "proto3"; import "nowhere.proto";', "nowhere.proto: File not found"),
        ('syntax = "proto3"; import "/etc/hostname";', "/etc/hostname"),
        ('syntax = "proto3"; import "../../x.proto";', "not allowed in the virtual path"),
        ('syntax = "proto3"; message A { int32 a = 1; int32 b = 1; }', "Field number 1 has already been used"),
        ('syntax = "proto3"; message A { Nothing a = 1; }', '"Nothing" is not defined'),
        ("Zm9v", "Expected top-level statement"),
    ],
)
def test_what_is_no_schema(text: str, told: str) -> None:
    with pytest.raises(ValueError, match="schema") as caught:
        descriptor_set(text)
    assert told in str(caught.value)
    assert "WARNING" not in str(caught.value)
    assert "/tmp" not in str(caught.value)


@each_case("name", ["", "..", "a/../../b", "/etc/x", "a\\b", "a\nb", "-I/", "a//b", MAIN + "/x"])
def test_names_that_are_none_of_files(name: str) -> None:
    with pytest.raises(ValueError, match="cannot be imported by the name"):
        descriptor_set('syntax = "proto3";', [(name, 'syntax = "proto3";')])


def test_a_reference_with_the_name_of_the_descriptor() -> None:
    other = descriptor_set('syntax = "proto3"; message A {}').file[-1]
    main = FileDescriptorProto.FromString(other.SerializeToString())
    main.message_type[0].name = "B"
    main.dependency.append(MAIN)
    assert [file.message_type[0].name for file in descriptor_set(in_base64(main), [(MAIN, in_base64(other))]).file] == [
        "A",
        "B",
    ]


def test_texts_are_not_taken_for_base64() -> None:
    for text in ("", " ", 'syntax = "proto3";', "message"):
        assert from_base64(text) is None


@pytest.mark.parametrize(
    "name",
    ["@{file}", "--version", "--help", "-I{folder}", "--python_out={folder}", "../x.proto", "/x.proto", "a\0b", ""],
)
def test_the_name_in_a_descriptor_is_no_argument_of_the_compiler(name: str, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("hunter2\n")
    file = FileDescriptorProto(name=name.format(file=secret, folder=tmp_path))
    file.message_type.add(name="A")
    found = descriptor_set(in_base64(file)).file[-1]
    assert (found.name, found.message_type[0].name) == (MAIN, "A")
    assert [each.name for each in tmp_path.iterdir()] == ["secret"]

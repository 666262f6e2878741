"""`sparkonce peek` on an embedded broker and registry: which records are shown, and how they are decoded."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from sparkonce import EmbeddedBroker, EmbeddedRegistry
from sparkonce.connectors.schema_registry import wire
from sparkonce.connectors.schema_registry.cache import VARIABLE
from sparkonce.jobs.cli.main import main
from sparkonce.jobs.cli.peek.reading import Start, TopicReader, Wanted
from tests.unit.registry_client.doubles import document, double

DAY_MS = 1_700_000_000_000
DAY = "2023-11-14T22:13:20"
RECORD = {
    "type": "record",
    "name": "Person",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "tags", "type": {"type": "map", "values": "int"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}},
        {"name": "raw", "type": ["null", "bytes"]},
        {"name": "ratio", "type": "double"},
    ],
}
_numbers = count()


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as made:
        yield made


@pytest.fixture(scope="module")
def registry(broker: EmbeddedBroker) -> Iterator[EmbeddedRegistry]:
    with EmbeddedRegistry(broker.bootstrap_servers) as made:
        yield made


@pytest.fixture
def client(registry: EmbeddedRegistry) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": registry.url}) as made:
        yield made


@pytest.fixture(autouse=True)
def no_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "")


Send = Callable[..., None]


@pytest.fixture
def send(broker: EmbeddedBroker) -> Iterator[Send]:
    """Return what sends one record."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 0})

    def send(topic: str, value: bytes | None, key: bytes | None = None, at: int = 0, **more: Any) -> None:
        producer.produce(topic, value, key, partition=more.pop("partition", 0), timestamp=DAY_MS + at, **more)
        producer.flush()

    yield send
    producer.flush()


@pytest.fixture
def topic(broker: EmbeddedBroker) -> str:
    """Return the name of a new topic with three partitions."""
    name = f"peek-{next(_numbers)}"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic(name, 3)])[name].result()
    return name


class Peek:
    """Runs the command."""

    def __init__(self, broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str]) -> None:
        self._servers, self._capsys = broker.bootstrap_servers, capsys
        self.told = ""

    def __call__(self, *words: str, status: int = 0) -> str:
        """Run it; return what it prints."""
        assert main(["peek", *words, "--bootstrap-servers", self._servers]) == status, self._capsys.readouterr()
        found = self._capsys.readouterr()
        self.told = found.err
        return found.out

    def documents(self, *words: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self(*words, "--output", "json").splitlines()]

    def values(self, *words: str) -> list[Any]:
        return [each.get("value") for each in self.documents(*words)]


@pytest.fixture
def peek(broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str]) -> Peek:
    return Peek(broker, capsys)


def test_the_newest_records_of_all_partitions(peek: Peek, send: Send, topic: str) -> None:
    for number in range(12):
        send(topic, b"%d" % number, at=number, partition=number % 3)
    assert peek.values(topic, "-n", "5") == ["7", "8", "9", "10", "11"]
    assert len(peek.values(topic)) == 10
    assert peek.values(topic, "-n", "2", "-p", "1") == ["7", "10"]
    assert peek.values(topic, "-n", "all") == [str(each) for part in range(3) for each in range(part, 12, 3)]


def test_where_it_begins_and_ends(peek: Peek, send: Send, topic: str) -> None:
    for number in range(12):
        send(topic, b"%d" % number, at=1000 * number, partition=number % 3)
    assert peek.values(topic, "--offset", "earliest", "-n", "4") == ["0", "1", "2", "3"]
    assert peek.values(topic, "--offset", "2") == ["6", "7", "8", "9", "10", "11"]
    assert peek.values(topic, "--offset", "-1") == ["9", "10", "11"]
    assert peek.values(topic, "--offset", "99") == []
    assert "no record of topic" in peek.told
    assert peek.values(topic, "--from", f"{DAY[:-2]}27") == ["7", "8", "9", "10", "11"]
    assert peek.values(topic, "--from", f"{DAY[:-2]}22", "--until", f"{DAY[:-2]}24") == ["2", "3"]
    assert peek.values(topic, "--until", f"{DAY[:-2]}23", "-n", "2") == ["1", "2"]
    assert peek.values(topic, "--from", "2030-01-01") == []
    assert peek.values(topic, "-o", "json", "--offset", "latest") == []


def test_records_with_a_key(peek: Peek, send: Send, topic: str) -> None:
    for number in range(40):
        send(topic, b"%d" % number, b"k%d" % (number % 10), number)
    send(topic, b"no key", None, 50)
    send(topic, b"bytes", b"\0\xff", 51)
    assert peek.values(topic, "--key", "k3", "-n", "2") == ["23", "33"]
    assert peek.values(topic, "--key", "k3", "--offset", "earliest", "-n", "2") == ["3", "13"]
    assert peek.values(topic, "--key", "hex:00ff") == ["bytes"]
    assert peek.values(topic, "--key", "nobody") == []
    assert peek.values(topic, "--text", "K3", "-n", "2") == ["23", "33"]
    assert peek.values(topic, "--text", "1", "--key", "k3") == ["13"] == peek.values(topic, "--text", "13")
    assert peek.values(topic, "--text", "no", "--offset", "earliest", "-n", "1") == ["no key"]
    assert peek.values(topic, "--text", "nobody") == []


def test_aborted_and_control_records_do_not_count(peek: Peek, broker: EmbeddedBroker, topic: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions()
    for number in range(30):
        producer.begin_transaction()
        producer.produce(topic, b"%d" % number, partition=0)
        producer.commit_transaction() if number % 2 else producer.abort_transaction()
    committed = ("--kafka", "isolation.level=read_committed")
    assert peek.values(topic, "-n", "4", *committed) == ["23", "25", "27", "29"]


def test_what_arrives(broker: EmbeddedBroker, send: Send, topic: str) -> None:
    send(topic, b"old")
    reader = TopicReader({"kafka.bootstrap.servers": broker.bootstrap_servers}, topic)
    try:
        bounds = reader.bounds(Wanted(start=Start(0, from_end=True)))
        arriving = reader.follow(bounds, None, lambda _: send(topic, b"new"))
        assert [each.value for each in next(arriving)] == [b"new"]
        assert [each.value for each in next(arriving)] == [b"new"]
    finally:
        reader.close()


def test_following_ends_after_as_many_as_wanted(peek: Peek, send: Send, topic: str) -> None:
    for number in range(5):
        send(topic, b"%d" % number, at=number)
    assert peek.values(topic, "-f", "--offset", "2", "-n", "2") == ["2", "3"]


def test_what_values_are_without_a_registry(peek: Peek, send: Send, topic: str) -> None:
    values = [
        None,
        b"",
        b"text \xc3\xa9",
        b'{"a": [1, 2.5, null], "b": {"c": "\xc3\xa9"}}',
        b'{"a": 1, "a": 2}',
        b'{"a": NaN}',
        b'{"a": -1e999}',
        b"[1",
        b"\xff\xfe",
        b"\0\0\0\0\0\0\0\7",
        b"\0\0\0\0\7avro",
    ]
    for at, value in enumerate(values):
        send(topic, value, b"key", at)
    found = peek.documents(topic, "-n", "all")
    shown = [{name: each[name] for name in each if name.startswith("value")} for each in found]
    assert shown == [
        {"value": None},
        {"value": ""},
        {"value": "text é"},
        {"value": {"a": [1, 2.5, None], "b": {"c": "é"}}},
        {"value": '{"a": 1, "a": 2}'},
        {"value": '{"a": NaN}'},
        {"value": '{"a": -1e999}'},
        {"value": "[1"},
        {"valueBase64": "//4="},
        {"valueBase64": "AAAAAAAAAAc="},
        {"valueBase64": "AAAAAAdhdnJv", "valueProblem": "may have schema 7: --registry decodes it"},
    ]
    assert found[0] == {
        "topic": topic,
        "partition": 0,
        "offset": 0,
        "timestamp": f"{DAY}.000Z",
        "timestampType": 0,
        "key": "key",
        "value": None,
        "headers": [],
    }


def test_avro_and_json_schema_by_the_registry(
    peek: Peek, send: Send, topic: str, registry: EmbeddedRegistry, client: SchemaRegistryClient
) -> None:
    import datetime
    from decimal import Decimal

    value = {
        "id": 1,
        "tags": {"a": 1},
        "at": datetime.datetime(2024, 5, 1, 12, tzinfo=datetime.UTC),
        "price": Decimal("12.50"),
        "raw": b"\xff",
        "ratio": float("nan"),
    }
    avro = AvroSerializer(client, json.dumps(RECORD))(value, SerializationContext(topic, MessageField.VALUE))
    other = '{"$schema":"http://json-schema.org/draft-07/schema#","title":"T","type":"object"}'
    text = JSONSerializer(other, client)({"x": [1]}, SerializationContext(f"{topic}j", MessageField.VALUE))
    key = AvroSerializer(client, '"string"')("me", SerializationContext(topic, MessageField.KEY))
    send(topic, avro, key)
    send(topic, text, at=1)
    send(topic, avro[:-1], at=2)
    send(topic, wire.frame(9999) + b"{}", at=3)
    guid = client.lookup_schema(f"{topic}-value", Schema(json.dumps(RECORD))).guid
    send(topic, avro[5:], at=4, headers=[(wire.VALUE_HEADER, wire.header(guid)), ("h", b"1")])
    first, second, cut, unknown, bare = peek.documents(topic, "--registry", registry.url)
    expected = {
        "id": 1,
        "tags": {"a": 1},
        "at": "2024-05-01T12:00:00+00:00",
        "price": "12.50",
        "raw": "/w==",
        "ratio": "nan",
    }
    assert (first["value"], first["key"]) == (expected, "me")
    assert first["valueSchemaId"] != first["keySchemaId"]
    assert second["value"] == {"x": [1]}
    assert cut["valueSchemaId"] == first["valueSchemaId"]
    assert "valueBase64" in cut
    assert "ratio" in cut["valueProblem"]
    assert unknown["valueProblem"].startswith("may have schema 9999: ")
    assert "not found" in unknown["valueProblem"]
    assert (bare["value"], bare["valueSchemaId"]) == (expected, guid)
    assert [each["key"] for each in bare["headers"]] == [wire.VALUE_HEADER, "h"]


def test_protobuf_by_the_registry(
    peek: Peek, send: Send, topic: str, registry: EmbeddedRegistry, client: SchemaRegistryClient
) -> None:
    text = (
        'syntax = "proto3"; import "low.proto"; message A { int32 id = 1; message B { Low low = 1; bytes raw = 2; } }'
    )
    client.register_schema(f"{topic}-low", Schema('syntax = "proto3"; message Low { string s = 1; }', "PROTOBUF"))
    reference = SchemaReference("low.proto", f"{topic}-low", 1)
    number = client.register_schema(f"{topic}-value", Schema(text, "PROTOBUF", references=[reference]))
    broken = client.register_schema(f"{topic}-2", Schema('syntax = "proto3"; message N { N n = 1; }', "PROTOBUF"))
    send(topic, wire.frame(number, (0,)) + b"\x08\x05")
    send(topic, wire.frame(number, (0, 0)) + b"\x0a\x04\x0a\x02hi\x12\1\xff", at=1)
    send(topic, wire.frame(number, (0, 7)), at=2)
    send(topic, wire.frame(number) + b"\x80", at=3)
    send(topic, wire.frame(number, (0,)) + b"\x08", at=4)
    send(topic, wire.frame(broken, (0,)), at=5)
    first, second, *others = peek.documents(topic, "--registry", registry.url)
    assert (first["value"], first["valueSchemaId"]) == ({"id": 5}, number)
    assert second["value"] == {"low": {"s": "hi"}, "raw": "/w=="}
    assert ["valueBase64" in each for each in others] == [True] * 4
    assert "has no message at the path [0, 7]" in others[0]["valueProblem"]
    assert others[1]["valueProblem"] == "the path to its message cannot be read"


def test_types_within_themselves_are_shown_three_deep(
    peek: Peek, send: Send, topic: str, registry: EmbeddedRegistry, client: SchemaRegistryClient
) -> None:
    fields = [{"name": "v", "type": "int"}, {"name": "n", "type": ["null", "R"]}]
    tree = json.dumps({"type": "record", "name": "R", "fields": fields})
    numbers = [
        client.register_schema(f"{topic}-avro", Schema(tree)),
        client.register_schema(
            f"{topic}-low", Schema('syntax = "proto3"; message R { R n = 1; int32 v = 2; }', "PROTOBUF")
        ),
    ]
    value, message = b"\2\0", b"\x10\1"
    for _ in range(4):
        value, message = b"\2\2" + value, b"\x0a" + bytes([len(message)]) + message + b"\x10\1"
    send(topic, wire.frame(numbers[0]) + value)
    send(topic, wire.frame(numbers[1], (0,)) + message, at=1)
    found = [each["value"] for each in peek.documents(topic, "--registry", registry.url)]
    assert found == [{"v": 1, "n": {"v": 1, "n": {"v": 1}}}] * 2


@pytest.mark.parametrize("kind", ["AVRO", "PROTOBUF"])
def test_a_schema_that_is_too_large_to_show(
    peek: Peek, send: Send, topic: str, client: SchemaRegistryClient, registry: EmbeddedRegistry, kind: str
) -> None:
    """No option of a query is of use here."""
    fields = [{"name": f"f{at}", "type": ["null", "R"]} for at in range(60)]
    avro = {"type": "record", "name": "R", "fields": [*fields, {"name": "v", "type": "int"}]}
    protobuf = "".join(f"R f{at} = {at + 1}; " for at in range(60))
    protobuf = f'syntax = "proto3"; message R {{ {protobuf} int32 v = 99; }}'
    number = client.register_schema(f"{topic}-value", Schema(json.dumps(avro) if kind == "AVRO" else protobuf, kind))
    send(topic, wire.frame(number) + (b"\0" if kind == "PROTOBUF" else b"\0" * 60 + b"\2"))
    shown = peek(topic, "--registry", registry.url, "-o", "pretty")
    assert shown.count("too large to show") == 1
    assert "recursiveFieldMaxDepth" not in shown


def test_a_registry_in_the_properties_file(
    peek: Peek, send: Send, topic: str, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    file = tmp_path / "client.properties"
    with EmbeddedRegistry(broker.bootstrap_servers, topic="_schemas_peek", user_info="me:s3cr3t") as registry:
        with SchemaRegistryClient({"url": registry.url, "basic.auth.user.info": "me:s3cr3t"}) as client:
            number = client.register_schema(f"{topic}-value", Schema('"string"'))
        send(topic, wire.frame(number) + b"\4hi")
        file.write_text(
            f"schema.registry.url={registry.url}\nschemaRegistry.basic.auth.user.info=me:s3cr3t\nclient.id=c\n"
        )
        assert peek.values(topic, "--command-config", str(file)) == ["hi"]
        file.write_text("client.id=c\n")
        wrong = ("--registry", registry.url, "--registry-option", "basic.auth.user.info=me:wr0ng")
        assert peek(topic, "--command-config", str(file), *wrong, status=1) == ""
        assert "Check schemaRegistry.basic.auth" in peek.told
        assert "wr0ng" not in peek.told


def test_a_table(peek: Peek, send: Send, topic: str) -> None:
    send(topic, b'{"a": 1,\n "b": "x"}', b"k1")
    send(topic, b"\x1b[31mred\r\n\xe2\x80\xae", None, 1, headers=[("h\x07", b"\x9b1m"), ("n", None)])
    send(topic, b"\xff" * 300, b"x" * 60, 2)
    lines = peek(topic).splitlines()
    assert [line.split()[:3] for line in lines] == [
        ["PARTITION", "OFFSET", "TIMESTAMP"],
        *(["0", str(at), f"{DAY}.00{at}Z"] for at in range(3)),
    ]
    assert lines[0].split()[3:] == ["KEY", "HEADERS", "VALUE"]
    assert lines[1].endswith('{"a":1,"b":"x"}')
    assert lines[2].endswith("\\x1b[31mred\\r\\n\\u202e")
    assert "h\\x07=0x9b316d, n=null" in lines[2]
    assert f"{'x' * 39}… " in lines[3]
    assert lines[3].endswith(f"0x{'ff' * 256}… (300 bytes)")
    assert all(each.isprintable() for line in lines for each in line)


def test_blocks(peek: Peek, send: Send, topic: str) -> None:
    send(topic, b'{"a": ["\\u001b", 1]}', b"k", headers=[("h", b"v")])
    send(topic, b"one\ntwo\x1b", None, 1)
    assert peek(topic, "-o", "pretty").splitlines() == [
        f"── partition 0, offset 0, {DAY}.000Z",
        "key     k",
        "header  h: v",
        "{",
        '  "a": [',
        '    "\\u001b",',
        "    1",
        "  ]",
        "}",
        f"── partition 0, offset 1, {DAY}.001Z",
        "key     null",
        "one",
        "two\\x1b",
    ]


def test_bytes_as_they_are(
    broker: EmbeddedBroker, send: Send, topic: str, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    for at, value in enumerate([b"\xff\x1b", None, b"x"]):
        send(topic, value, at=at)
    assert main(["peek", topic, "--bootstrap-servers", broker.bootstrap_servers, "-o", "raw"]) == 0
    assert capfdbinary.readouterr().out == b"\xff\x1b\n\nx\n"


def test_a_schema_from_samples(peek: Peek, send: Send, topic: str) -> None:
    send(topic, b'{"id": 1, "a b": [1.5]}')
    send(topic, b'{"id": 2, "who": {"name": "x"}}', at=1)
    send(topic, b"junk", at=2)
    send(topic, None, at=3)
    assert peek(topic, "--schema") == "id BIGINT, `a b` ARRAY<DOUBLE>, who STRUCT<name: STRING>\n"
    assert peek.told == f"# valueFormat=json: from 2 values of topic {topic}; 1 other will not parse\n"


def test_a_schema_does_not_drive_a_terminal(
    peek: Peek,
    send: Send,
    topic: str,
    registry: EmbeddedRegistry,
    client: SchemaRegistryClient,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    send(topic, json.dumps({"a\x1b[2J": 1, "\x9b2J": 2, "\u202eb": 3}).encode())
    text = 'syntax = "proto3"; // \x1b]0;x\x07 \x9b2J\nmessage A {\n\tint32 a = 1;\n}'
    client.register_schema(f"{topic}-value", Schema(text, "PROTOBUF"))
    with_registry = (topic, "--schema", "--registry", registry.url)
    assert peek(*with_registry) == f"{text}\n"  # into a file: as it is
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    for words in ((topic, "--schema"), with_registry):
        shown = peek(*words)
        assert all(each.isprintable() or each in "\n\t" for each in shown), shown
        assert "\\x9b2J" in shown
    script = lambda _: document(422, {"error_code": 42201, "message": "\x1b[2J"})  # noqa: E731
    with double(script) as fake:
        peek(topic, "--schema", "--registry", fake.url, status=1)
    assert "\\x1b[2J" in peek.told
    assert "\x1b" not in peek.told


def test_a_schema_of_the_registry(
    peek: Peek, send: Send, topic: str, registry: EmbeddedRegistry, client: SchemaRegistryClient
) -> None:
    number = client.register_schema(f"{topic}-value", Schema(json.dumps(RECORD)))
    send(topic, wire.frame(number))
    assert json.loads(peek(topic, "--schema", "--registry", registry.url))["fields"] == RECORD["fields"]
    assert f"valueFormat=avro: version 1 of subject {topic}-value, id {number}" in peek.told
    peek(topic, "--schema", "--registry", registry.url, "--subject", "another", status=1)
    assert "Subject 'another' not found" in peek.told
    assert "Name another with --subject" in peek.told
    peek(topic, "--schema", status=1)
    assert "they name schemas of a registry: give --registry" in peek.told


def test_a_schema_to_paste_has_its_references(
    peek: Peek, topic: str, registry: EmbeddedRegistry, client: SchemaRegistryClient
) -> None:
    client.register_schema(f"{topic}-city", Schema('{"type": "object", "title": "City"}', "JSON"))
    reference = SchemaReference("city.json", f"{topic}-city", 1)
    root = '{"type": "object", "properties": {"to": {"$ref": "city.json"}}}'
    client.register_schema(f"{topic}-value", Schema(root, "JSON", references=[reference]))
    assert '"title": "City"' in peek(topic, "--schema", "--registry", registry.url)
    assert f"# valueFormat=json-schema: version 1 of subject {topic}-value" in peek.told
    text = 'syntax = "proto3"; message A { int32 id = 1; }'
    client.register_schema(f"{topic}-key", Schema(text, "PROTOBUF"))
    assert "message A" in peek(topic, "--schema", "--registry", registry.url, "--subject", f"{topic}-key")
    assert "# valueFormat=protobuf" in peek.told


def test_a_topic_that_is_not_there(peek: Peek, send: Send, topic: str) -> None:
    send(topic, b"x")
    peek(f"{topic}s", status=1)
    assert peek.told == f"sparkonce peek: topic {topic}s does not exist: did you mean {topic}?\n"


@pytest.mark.parametrize(
    ("words", "status", "told"),
    [
        (["no-such-topic"], 1, "no-such-topic"),
        (["t", "--offset", "1", "--from", "2024-01-01"], 2, "leave one out"),
        (["t", "--follow", "--schema"], 2, "--follow has no end"),
        (["t", "--subject", "s"], 2, "--subject is for --schema"),
        (["t", "--from", "2024-01-02", "--until", "2024-01-01"], 2, "--until must be after"),
        (["t", "--key", "hex:0"], 2, "expected pairs of hexadecimal digits"),
        (["t", "--kafka", "foo=1"], 2, "unknown option 'kafka.foo'"),
        (["t", "--registry", "h:1"], 2, "sparkonce peek: option schemaRegistry.url='h:1': expected addresses"),
        (["t", "--registry", "http://me:s3cr3t@h"], 2, "expected no user in it"),
        (["t", "--registry-option", "bearer.auth.token=s3cr3t"], 2, "needs schemaRegistry.url"),
        (["t", "--registry", "http://h", "--registry-option", "foo=1"], 2, "unknown option 'schemaRegistry.foo'"),
        (["t", "--command-config", "/nowhere"], 2, "no such file"),
    ],
)
def test_what_cannot_be_done(peek: Peek, words: list[str], status: int, told: str) -> None:
    assert peek(*words, status=status) == ""
    assert told in peek.told
    assert "s3cr3t" not in peek.told


def test_a_partition_that_is_not_there(peek: Peek, send: Send, topic: str) -> None:
    send(topic, b"x")
    peek(topic, "-p", "77", status=1)
    assert "has no partition 77: it has 0 to " in peek.told


def test_no_brokers(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["peek", "t"]) == 2
    assert "--bootstrap-servers is missing" in capsys.readouterr().err
    short = ["--kafka", "socket.connection.setup.timeout.ms=50"]
    assert main(["peek", "t", "--bootstrap-servers", "127.0.0.1:1", *short]) == 1
    assert "127.0.0.1:1" in capsys.readouterr().err


def test_offsets_that_are_none() -> None:
    for wrong in ("-0", "first", "--offset=-x", "1.5"):
        with pytest.raises(SystemExit):
            main(["peek", "t", "--offset", wrong])


def test_ctrl_c_ends_it(peek: Peek, send: Send, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    send(topic, b"x")

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("sparkonce.jobs.cli.peek.reading.TopicReader.follow", interrupted)
    assert peek(topic, "--follow") == ""

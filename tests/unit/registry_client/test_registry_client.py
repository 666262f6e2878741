"""The client against a real registry: schemas, versions, logins, and a registry that is gone and comes back."""

from __future__ import annotations

import json
import logging
import pickle
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Barrier
from typing import Any
from urllib.parse import urlsplit

import pytest
from confluent_kafka.schema_registry import (
    Schema,
    SchemaReference,
    SchemaRegistryClient,
)

from sparkonce import EmbeddedBroker, EmbeddedRegistry
from sparkonce.connectors.schema_registry.cache import VARIABLE, DiskCache
from sparkonce.connectors.schema_registry.client import (
    AVRO,
    JSON_SCHEMA,
    Reference,
    RegisteredSchema,
    Registry,
    RegistryLoginError,
    RejectedSchemaError,
    UnknownSchemaError,
    UnreachableRegistryError,
    shared_registry,
)
from sparkonce.connectors.schema_registry.settings import RegistrySettings
from tests.certificates import Authority

STRING = RegisteredSchema(AVRO, '"string"')


def canonical(schema: Any) -> str:
    """Return a schema as registries keep it: without spaces."""
    return json.dumps(schema, separators=(",", ":"))


def record(*names: str, default: Any = None) -> RegisteredSchema:
    """Return a schema of a record with texts; the fields after the first have defaults."""
    fields: list[dict[str, Any]] = [{"name": name, "type": "string"} for name in names]
    for each in fields[1:]:
        each["default"] = "?"
    return RegisteredSchema(AVRO, canonical({"type": "record", "name": "R", "namespace": "x", "fields": fields}))


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as made:
        yield made


@pytest.fixture(scope="module")
def server(broker: EmbeddedBroker) -> Iterator[EmbeddedRegistry]:
    with EmbeddedRegistry(broker.bootstrap_servers, topic="_schemas") as made:
        yield made


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of schemas on disk; a new one for each test."""
    monkeypatch.setenv(VARIABLE, str(tmp_path / "schemas"))
    return tmp_path / "schemas"


@contextmanager
def connected(url: str, **more: Any) -> Iterator[Registry]:
    """Yield a client of its own."""
    made = Registry(RegistrySettings(url=tuple(url.split(",")), **{"retries": 1, "wait_ms": 1, **more}))
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def registry(server: EmbeddedRegistry) -> Iterator[Registry]:
    with connected(server.url) as made:
        yield made


@pytest.fixture
def theirs(server: EmbeddedRegistry) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": server.url}) as made:
        yield made


def test_a_schema_is_registered_found_and_read(registry: Registry, theirs: SchemaRegistryClient) -> None:
    number = registry.register("first", record("a"))
    assert registry.register("first", record("a")) == number
    assert registry.schema(number) == record("a")
    found = registry.lookup("first", record("a"))
    assert (found.version, found.id) == (1, number)
    assert registry.latest("first") == found
    assert found.guid is not None
    assert registry.schema_by_guid(found.guid) == record("a")
    assert theirs.get_schema(number).schema_str == record("a").text
    assert registry.register("first", record("a", "b")) != number
    assert registry.latest("first").version == 2
    assert registry.version("first", 1).schema == record("a")


def test_what_is_not_there(registry: Registry) -> None:
    registry.register("there", STRING)
    for ask in (
        lambda: registry.schema(999_999),
        lambda: registry.schema_by_guid("0123abcd-4567-89ab-cdef-0123456789ab"),
        lambda: registry.latest("nowhere"),
        lambda: registry.version("there", 7),
        lambda: registry.lookup("there", record("unseen")),
        lambda: registry.lookup("nowhere", STRING),
    ):
        with pytest.raises(UnknownSchemaError, match="not found"):
            ask()


def test_what_is_not_accepted(registry: Registry) -> None:
    registry.register("strict", record("a"))
    with pytest.raises(RejectedSchemaError, match="subject strict"):
        registry.register("strict", record("b"))
    with pytest.raises(RejectedSchemaError, match="subject strict"):
        registry.register("strict", RegisteredSchema(AVRO, '{"type": "nothing"}'))


def test_references_are_read_in_order_and_written_as_they_were(
    registry: Registry, theirs: SchemaRegistryClient
) -> None:
    low = {"type": "enum", "name": "x.Low", "symbols": ["A"]}
    middle = {"type": "record", "name": "x.Middle", "fields": [{"name": "low", "type": "x.Low"}]}
    top = {"type": "record", "name": "x.Top", "fields": [{"name": "middle", "type": "x.Middle"}]}
    theirs.register_schema("low", Schema(canonical(low)))
    theirs.register_schema("middle", Schema(canonical(middle), references=[SchemaReference("x.Low", "low", 1)]))
    number = theirs.register_schema(
        "top", Schema(canonical(top), references=[SchemaReference("x.Middle", "middle", 1)])
    )
    found = registry.schema(number)
    assert found.references == (
        Reference("x.Low", "low", 1, canonical(low), direct=False),
        Reference("x.Middle", "middle", 1, canonical(middle)),
    )
    assert registry.latest("top").schema == found
    assert registry.lookup("top", found).id == number
    assert registry.register("top", found) == number
    assert pickle.loads(pickle.dumps(found)) == found


def test_kinds(registry: Registry) -> None:
    schema = RegisteredSchema(JSON_SCHEMA, '{"type":"object","title":"T"}')
    assert registry.schema(registry.register("json", schema)) == schema


def test_ids_of_a_context(server: EmbeddedRegistry, registry: Registry) -> None:
    with connected(server.url, context=".eu") as within:
        number = within.register("s", record("in", "context"))
        assert within.schema(number) == registry.schema(number, ":.eu:s") == record("in", "context")
        assert registry.schema(registry.register("outside", record("outside"))) == record("outside")
        assert within.latest("s").schema == registry.latest(":.eu:s").schema == record("in", "context")
        with pytest.raises(UnknownSchemaError):
            registry.latest("s")


def test_a_process_has_one_client() -> None:
    settings = RegistrySettings(url=("http://h:1",))
    assert shared_registry(settings) is shared_registry(RegistrySettings(url=("http://h:1",)))
    assert shared_registry(settings) is not shared_registry(RegistrySettings(url=("http://h:2",)))


def test_subjects_are_those_of_the_context(server: EmbeddedRegistry) -> None:
    with connected(server.url) as everywhere, connected(server.url, context=".other") as other:
        everywhere.register("plain", STRING)
        other.register("staged", STRING)
        assert other.subjects() == ["staged"]
        assert {"plain", ":.other:staged"} <= set(everywhere.subjects())
        for registry in (everywhere, other):
            for subject in registry.subjects():
                assert registry.version_numbers(subject)


def test_threads_that_ask_at_once_share_one_client(server: EmbeddedRegistry) -> None:
    """A second one would be lost with its connections open."""
    for _ in range(5):
        with connected(server.url) as registry, ThreadPoolExecutor(4) as threads:
            at_once = Barrier(4)

            def ask(_: int, registry: Registry = registry, at_once: Barrier = at_once) -> SchemaRegistryClient:
                at_once.wait()
                return registry._client(server.url)

            assert len(set(map(id, threads.map(ask, range(4))))) == 1


def test_basic_authentication(broker: EmbeddedBroker) -> None:
    login = "me:pass:word"
    with EmbeddedRegistry(broker.bootstrap_servers, topic="_schemas_login", user_info=login) as server:
        with connected(server.url, user_info=login) as registry:
            assert registry.schema(registry.register("s", STRING)) == STRING
        for wrong in (None, "me:s3cr3t"):
            with connected(server.url, user_info=wrong) as registry:
                with pytest.raises(RegistryLoginError, match=r"Check schemaRegistry.basic.auth") as refused:
                    registry.schema(1)
                assert "s3cr3t" not in str(refused.value)


@pytest.mark.parametrize("password", [None, "key-s3cr3t"])
def test_mutual_tls(broker: EmbeddedBroker, tmp_path: Path, password: str | None) -> None:
    authority, other = Authority(tmp_path), Authority(tmp_path, "other")
    us = authority.issue("registry.pem")
    key, certificate = tmp_path / "client.key", tmp_path / "client.crt"
    client = authority.issue("client.pem")
    key.write_text(client.key_text(password))
    certificate.write_text(client.chain)
    tls = {"ca_location": str(authority.file), "certificate_location": str(certificate), "key_location": str(key)}
    files: dict[str, Any] = {"certificate": str(us.file), "client_ca": str(authority.file)}
    with EmbeddedRegistry(broker.bootstrap_servers, topic="_schemas_tls", **files) as server:
        assert server.url.startswith("https:")
        with connected(server.url, key_password=password, **tls) as registry:
            assert registry.schema(registry.register("s", STRING)) == STRING
        for wrong in (
            {"ca_location": str(authority.file)},
            {**tls, "ca_location": str(other.file), "key_password": password},
        ):
            with (
                connected(server.url, **wrong) as registry,
                pytest.raises(UnreachableRegistryError, match="does not answer") as refused,
            ):
                registry.register("s", STRING)
            assert "key-s3cr3t" not in str(refused.value)


def test_a_registry_that_is_down_and_comes_back(
    broker: EmbeddedBroker, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    topic = "_schemas_down"
    with EmbeddedRegistry(broker.bootstrap_servers, topic=topic) as server, connected(server.url) as registry:
        url = server.url
        number, other = registry.register("s", record("a")), registry.register("t", STRING)
        guid = registry.latest("s").guid
        assert guid is not None
        registry.schema(number)
        registry.schema_by_guid(guid)
    with connected(url) as another, caplog.at_level(logging.WARNING):
        assert another.schema(number) == another.schema_by_guid(guid) == record("a")
        assert "as it was read before" in caplog.text
        for ask in (lambda: another.schema(other), lambda: another.latest("s"), lambda: another.register("s", STRING)):
            with pytest.raises(UnreachableRegistryError, match="does not answer"):
                ask()
        port = urlsplit(url).port
        assert port is not None
        with EmbeddedRegistry(broker.bootstrap_servers, topic=topic, port=port):
            assert another.schema(other) == STRING
            assert another.latest("s").id == number


def test_a_registry_that_was_set_up_anew_is_believed_more_than_the_disk(broker: EmbeddedBroker) -> None:
    with EmbeddedRegistry(broker.bootstrap_servers, topic="_schemas_old") as server, connected(server.url) as registry:
        url, number = server.url, registry.register("s", record("old"))
        assert registry.schema(number) == record("old")
    port = urlsplit(url).port
    assert port is not None
    with EmbeddedRegistry(broker.bootstrap_servers, topic="_schemas_new", port=port), connected(url) as registry:
        assert registry.register("s", record("new")) == number
        assert registry.schema(number) == record("new")
    with connected(url) as registry:
        assert registry.schema(number) == record("new")


def test_the_other_of_two_addresses(server: EmbeddedRegistry, registry: Registry) -> None:
    number = registry.register("s", STRING)
    with connected(f"http://127.0.0.1:1,{server.url}") as two:
        assert two.schema(number) == two.latest("s").schema == STRING


def test_damaged_files_are_read_again(server: EmbeddedRegistry, registry: Registry, folder: Path) -> None:
    number = registry.register("damaged", record("good"))
    registry.schema(number)
    (path,) = folder.glob(f"*/id-{number}.json")
    good = path.read_text()
    for bad in (good.replace("good", "evil"), good[:-5], "", "junk", "\udcff"):
        path.write_bytes(bad.encode(errors="surrogateescape"))
        with connected(server.url) as another:
            assert another.schema(number) == record("good")
        assert path.read_text() == good
    with connected("http://127.0.0.1:1") as nowhere, pytest.raises(UnreachableRegistryError):
        nowhere.schema(number)


def test_a_file_under_another_name_is_not_believed(folder: Path) -> None:
    cache = DiskCache(["http://h"])
    cache.put("id-1", ["AVRO", "text", []])
    (path,) = folder.glob("*/*.json")
    path.rename(path.with_name("id-2.json"))
    assert cache.get("id-2") is None
    path.with_name("id-2.json").rename(path)
    assert cache.get("id-1") == ["AVRO", "text", []]
    assert DiskCache(["http://h", "http://g"]).get("id-1") is None


def test_a_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    for place in (str(tmp_path / "file"), ""):
        monkeypatch.setenv(VARIABLE, place)
        cache = DiskCache(["http://h"])
        cache.put("id-1", [])
        assert cache.get("id-1") is None


def test_documents_of_other_versions_are_not_believed(folder: Path) -> None:
    cache = DiskCache(["http://127.0.0.1:1"])
    for document in ({"kind": "AVRO"}, ["AVRO"], ["AVRO", "t", [[1, 2, 3, 4, 5, 6, 7]]], None, 7):
        cache.put("id-1", document)
        with connected("http://127.0.0.1:1", retries=0) as registry, pytest.raises(UnreachableRegistryError):
            registry.schema(1)

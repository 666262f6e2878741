"""What goes wrong between us and a registry: each has its own error, which says what to do and shows no secret."""

from __future__ import annotations

import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import pytest

from sparkonce.connectors.schema_registry import client as client_module
from sparkonce.connectors.schema_registry.cache import VARIABLE
from sparkonce.connectors.schema_registry.client import (
    AVRO,
    NotARegistryError,
    RegisteredSchema,
    Registry,
    RegistryError,
    RegistryLoginError,
    RejectedSchemaError,
    UnknownSchemaError,
    UnreachableRegistryError,
)
from sparkonce.connectors.schema_registry.settings import RegistrySettings
from tests.unit.registry_client.doubles import Answer, Request, document, double

SCHEMA = document(200, {"schema": '"string"'})
SECRET = "s3cr3t-pl4nted"


@pytest.fixture(autouse=True)
def no_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "")


@pytest.fixture(autouse=True)
def closing() -> Iterator[None]:
    yield
    while _made:
        _made.pop().close()


_made: list[Registry] = []


def registry(*urls: str, **more: Any) -> Registry:
    _made.append(Registry(RegistrySettings(url=urls, **{"retries": 0, "wait_ms": 0, **more})))
    return _made[-1]


def free_address() -> str:
    """Return an address that nobody listens on."""
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{made.getsockname()[1]}"


def answers(answer: Answer) -> Callable[[Request], Answer]:
    return lambda _: answer


@pytest.mark.parametrize(
    ("answer", "error", "told"),
    [
        (document(404, {"error_code": 40403, "message": "Schema 7 not found"}), UnknownSchemaError, "Schema 7 not"),
        (document(404, {"error_code": 404, "message": "HTTP 404 Not Found"}), NotARegistryError, "Check host and path"),
        ((404, b"<html>nothing here</html>"), NotARegistryError, "HTTP 404"),
        ((200, b"<html>welcome</html>"), NotARegistryError, "does not answer as a schema registry"),
        ((200, b""), NotARegistryError, "does not answer as"),
        (document(200, {"hello": 1}), NotARegistryError, "the answer has no schema"),
        (document(200, {"schema": {"type": "string"}}), NotARegistryError, "does not answer as"),
        (document(200, [1]), NotARegistryError, "does not answer as"),
        (document(404, {"detail": "no"}), NotARegistryError, "HTTP 404"),
        ((302, b""), NotARegistryError, "HTTP 302"),
        (document(401, {"error_code": 401, "message": "Unauthorized"}), RegistryLoginError, "Check .*basic.auth"),
        ((403, b"go away"), RegistryLoginError, "this user's rights"),
        (document(503, {"error_code": 50301, "message": "no leader"}), UnreachableRegistryError, "no leader .*later"),
        ((500, b"<html>oh</html>"), UnreachableRegistryError, "Try again later"),
        (document(422, {"error_code": 42201, "message": "not valid"}), RejectedSchemaError, "not valid"),
        (document(409, {"error_code": 409, "message": "not compatible"}), RejectedSchemaError, "not compatible"),
        (document(413, {"error_code": 413, "message": "too large"}), RegistryError, "too large"),
        (None, UnreachableRegistryError, "does not answer, asked for id 7"),
    ],
)
def test_answers_that_are_no_schema(answer: Answer, error: type[RegistryError], told: str) -> None:
    with double(answers(answer)) as server, pytest.raises(error, match=told) as caught:
        registry(server.url).schema(7)
    assert type(caught.value) is error
    assert server.url in str(caught.value)
    assert "id 7" in str(caught.value)


@pytest.mark.parametrize("answer", [{"id": "x"}, {}, {"schema": '"string"'}, {"id": 1, "schema": '"string"'}])
def test_versions_without_numbers(answer: Any) -> None:
    with double(answers(document(200, answer))) as server:
        asking = registry(server.url)
        for ask in (lambda: asking.latest("s"), lambda: asking.lookup("s", RegisteredSchema(AVRO, '"string"'))):
            with pytest.raises(NotARegistryError, match="has no id or version"):
                ask()
        if not isinstance(answer.get("id"), int):
            with pytest.raises(NotARegistryError, match="has no id or version"):
                asking.register("s", RegisteredSchema(AVRO, '"string"'))


def test_nobody_listens() -> None:
    with pytest.raises(UnreachableRegistryError, match=r"does not answer.*Check schemaRegistry.url, and whether it"):
        registry(free_address()).schema(7)


def test_one_that_is_too_slow() -> None:
    waiting = threading.Event()
    with double(lambda _: SCHEMA if waiting.wait(30) else None) as server:
        try:
            with pytest.raises(UnreachableRegistryError, match="Timeout"):
                registry(server.url, timeout_ms=50).schema(7)
        finally:
            waiting.set()


def test_temporary_errors_are_asked_again() -> None:
    answers = iter([None, (503, b""), document(429, {"error_code": 42900, "message": "slow down"}), SCHEMA])
    with double(lambda _: next(answers)) as server:
        assert registry(server.url, retries=3).schema(7).text == '"string"'
        assert len(server.asked) == 4


def test_pauses_grow_up_to_the_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    monkeypatch.setattr(random, "uniform", lambda _, most: most)
    with double(answers((503, b""))) as server, pytest.raises(UnreachableRegistryError):
        registry(server.url, retries=5, wait_ms=100, most_wait_ms=700).schema(7)
    assert slept == [0.1, 0.2, 0.4, 0.7, 0.7]


def test_lasting_errors_are_not_asked_again() -> None:
    with double(answers(document(404, {"error_code": 40403, "message": "none"}))) as server:
        for _ in range(2):
            with pytest.raises(UnknownSchemaError):
                registry(server.url, retries=3).schema(7)
        assert len(server.asked) == 2


def test_the_next_address_is_asked_and_then_goes_first() -> None:
    with double(answers((503, b""))) as first, double(answers(SCHEMA)) as second:
        asking = registry(free_address(), first.url, second.url)
        for number in (1, 2, 3):
            asking.schema(number)
        assert len(first.asked) == 1
        assert [each.split("?")[0] for each in second.asked] == [f"GET /schemas/ids/{number}" for number in (1, 2, 3)]


def test_all_addresses_are_down() -> None:
    with pytest.raises(UnreachableRegistryError) as caught:
        registry(first := free_address(), second := free_address(), retries=1).schema(7)
    assert f"schema registry {first}, {second}" in str(caught.value)


def test_a_path_in_the_address_is_kept() -> None:
    with double(answers(SCHEMA)) as server:
        registry(f"{server.url}/apis/ccompat/v7").schema(7)
        assert server.asked == ["GET /apis/ccompat/v7/schemas/ids/7"]


def test_a_context_is_asked_for_in_ids_subjects_and_references() -> None:
    def script(request: Request) -> Answer:
        if "/ids/" in request.path:
            references = [
                {"name": "a", "subject": "low", "version": 3},
                {"name": "b", "subject": ":.us:x", "version": 1},
            ]
            return document(200, {"schema": '"string"', "references": references})
        return document(200, {"schema": '"int"', "id": 1, "version": 3, "subject": "s"})

    with double(script) as server:
        asking = registry(server.url, context=".eu")
        asking.schema(7)
        asking.schema(7, ":.us:t-value")
        asking.latest("top")
        paths = [each.removeprefix("GET ").replace("%3A", ":") for each in server.asked]
    low = "/subjects/:.eu:low/versions/3?deleted=true"
    assert paths == [
        "/schemas/ids/7?subject=:.eu:",
        low,
        "/subjects/:.us:x/versions/1?deleted=true",
        "/schemas/ids/7?subject=:.us:",
        low.replace(".eu", ".us"),
        "/subjects/:.us:x/versions/1?deleted=true",
        "/subjects/:.eu:top/versions/latest",
    ]


def test_schemas_that_refer_to_themselves() -> None:
    def script(request: Request) -> Answer:
        references = [{"name": "b" if "/a/" in request.path else "a", "subject": "b" if "/a/" in request.path else "a"}]
        return document(
            200, {"schema": '"int"', "id": 1, "version": 1, "references": [{**references[0], "version": 1}]}
        )

    with double(script) as server, pytest.raises(RegistryError, match="refers to itself: a -> b -> a"):
        registry(server.url).schema(7)


def test_more_references_than_anyone_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "MAX_REFERENCES", 5)

    def script(request: Request) -> Answer:
        number = len(server.asked)
        references = [{"name": f"n{number}", "subject": "s", "version": number}]
        return document(200, {"schema": '"int"', "id": 1, "version": 1, "references": references})

    with double(script) as server, pytest.raises(RegistryError, match="more than 5 others"):
        registry(server.url).schema(7)


def test_tokens_are_requested_and_sent() -> None:
    def issue(request: Request) -> Answer:
        return document(200, {"access_token": f"t{len(issuer.asked)}", "token_type": "bearer", "expires_in": 3600})

    seen: list[tuple[str | None, ...]] = []

    def script(request: Request) -> Answer:
        names = ("Authorization", "target-sr-cluster", "Confluent-Identity-Pool-Id")
        seen.append(tuple(request.headers.get(name) for name in names))
        return SCHEMA

    oauth = {"client_id": "me", "client_secret": SECRET, "logical_cluster": "lsrc-1", "identity_pool": "pool-2"}
    with double(issue) as issuer, double(script) as server:
        asking = registry(server.url, issuer=issuer.url, **oauth)
        asking.schema(1)
        asking.schema(2)
        assert len(issuer.asked) == 1
        registry(server.url, token="mine").schema(3)
    assert seen == [("Bearer t1", "lsrc-1", "pool-2")] * 2 + [("Bearer mine", "none", None)]


def test_an_issuer_that_returns_no_token() -> None:
    oauth = {"client_id": "me", "client_secret": SECRET}
    refusal = document(401, {"error": "invalid_client", "error_description": f"no such secret: {SECRET}"})
    with double(answers(refusal)) as issuer, double(answers(SCHEMA)) as server:
        with pytest.raises(
            UnreachableRegistryError, match=r"returned no token.*Check schemaRegistry.bearer.auth"
        ) as no:
            registry(server.url, issuer=issuer.url, **oauth).schema(1)
        assert server.asked == []
    assert SECRET not in str(no.value)
    assert issuer.url in str(no.value)


@pytest.mark.parametrize("login", [{"user_info": f"me:{SECRET}"}, {"token": SECRET}])
@pytest.mark.parametrize("status", [200, 401, 404, 409, 500])
def test_no_error_shows_a_secret_that_the_answer_repeats(login: dict[str, str], status: int) -> None:
    told = f"me:{SECRET} or {SECRET} at https://me:{SECRET}@host"
    for content in (told.encode(), b'{"error_code": 40401, "message": "%s"}' % told.encode()):
        with double(answers((status, content))) as server, pytest.raises(RegistryError) as caught:
            registry(server.url, **login).schema(7)
        assert SECRET not in str(caught.value)
        assert caught.value.__cause__ is None
        assert caught.value.__context__ is None or caught.value.__suppress_context__


def test_long_messages_are_cut() -> None:
    with double(answers((404, b"x" * 100_000))) as server, pytest.raises(NotARegistryError) as caught:
        registry(server.url).schema(7)
    assert len(str(caught.value)) < 1000


def test_files_of_tls_that_are_not_there() -> None:
    with pytest.raises(RegistryError, match=r"its options do not work: .*No such file"):
        registry("https://127.0.0.1:1", ca_location="/nowhere/ca.pem").schema(1)


@pytest.mark.parametrize("login", ["basic", "token", "issued"])
@pytest.mark.parametrize("status", [200, 401, 404, 409, 500])
def test_no_error_shows_what_was_sent(login: str, status: int) -> None:
    """As pages of proxies do that show the request they could not pass on."""
    issued = f"{SECRET}-issued-and-long-enough"
    sent: list[str] = []

    def script(request: Request) -> Answer:
        sent.append(request.headers["Authorization"])
        told = f"you sent Authorization: {sent[-1]}; or me:p%2Fw+{quote(SECRET)}"
        return document(status, {"error_code": 40401, "message": told}) if status % 2 else (status, told.encode())

    token = document(200, {"access_token": issued, "token_type": "bearer", "expires_in": 3600})
    with double(answers(token)) as issuer, double(script) as server:
        options = {
            "basic": {"user_info": f"me:p/w {SECRET}"},
            "token": {"token": SECRET},
            "issued": {"issuer": issuer.url, "client_id": "me", "client_secret": SECRET},
        }
        with pytest.raises(RegistryError) as caught:
            registry(server.url, **options[login]).schema(7)
    for secret in (SECRET, issued, sent[0].split()[1]):
        assert secret not in str(caught.value)


def test_an_id_that_no_registry_gives_is_unknown_without_a_request() -> None:
    """Any producer can write one, so it must not look like a registry that is none, which stops a query."""
    with double(answers(document(404, {"error_code": 404, "message": "HTTP 404 Not Found"}))) as server:
        for number in (2**31, 2**32 - 1):
            with pytest.raises(UnknownSchemaError, match="ids end at 2147483647"):
                registry(server.url).schema(number)
        assert server.asked == []


def test_the_disk_keeps_the_contexts_of_references_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    reference = {"name": "Low", "subject": "low", "version": 1}

    def script(request: Request) -> Answer:
        if "guids" in request.path:
            return document(200, {"schema": '"Low"', "references": [reference]})
        context = unquote(request.path).split(":")[1]
        return document(200, {"schema": f'"of {context}"', "id": 1, "version": 1, "subject": "low"})

    guid = "00000000-0000-0000-0000-000000000007"
    with double(script) as server:
        (found,) = registry(server.url, context=".a").schema_by_guid(guid).references
        assert found.text == '"of .a"'
        url = server.url
    (found,) = registry(url, context=".a").schema_by_guid(guid).references
    assert found.text == '"of .a"'
    with pytest.raises(UnreachableRegistryError):
        registry(url, context=".b").schema_by_guid(guid)


def test_a_schema_that_was_deleted_since_is_used_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    gone = document(404, {"error_code": 40403, "message": "Schema not found"})
    guid = "00000000-0000-0000-0000-000000000007"
    with double(answers(SCHEMA)) as server:
        before = registry(server.url)
        asked = [before.schema(7), before.schema_by_guid(guid)]
        server.script = answers(gone)
        after = registry(server.url)
        assert [after.schema(7), after.schema_by_guid(guid)] == asked
        for ask in (lambda: after.schema(8), lambda: after.latest("s")):
            with pytest.raises(UnknownSchemaError):
                ask()

"""The pages of a schema registry: its subjects, their versions and schemas."""

from __future__ import annotations

import json
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any
from urllib.request import Request, urlopen

import pytest
from playwright.sync_api import Page, expect

from sparkonce import EmbeddedBroker, EmbeddedRegistry
from sparkonce.connectors.schema_registry.client import (
    JSON_SCHEMA,
    RegisteredSchema,
    RegistryError,
    UnreachableRegistryError,
)
from sparkonce.jobs.ui.kafka.subjects import Subjects
from sparkonce.jobs.ui.pages.registry import REGISTRY, shown_text
from sparkonce.jobs.ui.server import UiServer
from sparkonce.jobs.ui.site import Given, Site
from tests.ui.looking import check_accessible, create_topic
from tests.unit.ui.shown import shown

ODD = 'o/d "d" <b>&?'


def request(url: str, method: str, body: Any) -> None:
    asked = Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"}, method=method)
    with urlopen(asked) as response:
        response.read()


def avro(*fields: str) -> dict[str, str]:
    listed = [{"name": each, "type": "int", "default": 0} for each in fields]
    return {"schema": json.dumps({"type": "record", "name": "R", "fields": listed})}


def test_from_subjects_to_a_version_of_one(kafka_broker: EmbeddedBroker, page: Page) -> None:
    servers = kafka_broker.bootstrap_servers
    create_topic(servers, "counted")
    with EmbeddedRegistry(servers) as registry:
        for fields in (["n"], ["n", "more"]):
            request(f"{registry.url}/subjects/counted-value/versions", "POST", avro(*fields))
        proto = 'syntax = "proto3"; message M { int32 a = 1; }'
        name = "o%2Fd%20%22d%22%20%3Cb%3E%26%3F"
        request(f"{registry.url}/subjects/{name}/versions", "POST", {"schema": proto, "schemaType": "PROTOBUF"})
        request(f"{registry.url}/config/{name}", "PUT", {"compatibility": "FULL"})
        given = Given({"kafka.bootstrap.servers": servers}, registry={"schemaRegistry.url": registry.url})
        with closing(Site(given)) as site, UiServer(site) as ui:
            page.goto(f"{ui.url}registry")
            expect(page.locator("tbody tr")).to_have_count(2)
            expect(page.locator("#s-counted-value")).to_contain_text("counted values", use_inner_text=True)
            check_accessible(page)
            page.get_by_role("link", name="counted-value").click()
            expect(page.locator("#version")).to_contain_text("Version 2")
            expect(page.locator("#version")).to_contain_text("BACKWARD")
            expect(page.locator("pre .string", has_text='"more"')).to_be_visible()
            check_accessible(page)
            page.get_by_role("link", name="1", exact=True).click()
            expect(page.locator("#version")).to_contain_text("Version 1")
            expect(page.locator("pre .string", has_text='"more"')).to_have_count(0)
            page.goto(f"{ui.url}registry?name=o%2FD")
            page.get_by_role("link", name=ODD).click()
            expect(page.locator("#version")).to_contain_text("FULL")
            expect(page.locator("pre")).to_contain_text("int32 a = 1")
            page.goto("about:blank")  # nothing is followed any more when the server ends
        with pytest.raises(RegistryError):
            site.subjects.one("another", None)  # a page that is still being read opens no connection


def test_a_subject_that_is_not_there(kafka_broker: EmbeddedBroker, browser_page_without_checks: Page) -> None:
    page = browser_page_without_checks
    with EmbeddedRegistry(kafka_broker.bootstrap_servers) as registry:
        given = Given(registry={"schemaRegistry.url": registry.url})
        with closing(Site(given)) as site, UiServer(site) as ui:
            page.goto(f"{ui.url}registry/subject?name=nothing")
            expect(page.locator("#main")).to_contain_text("HTTP 404")


def test_a_registry_that_does_not_answer_holds_up_neither_others_nor_the_end() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        options = {
            "schemaRegistry.url": f"http://127.0.0.1:{mute.getsockname()[1]}",
            "schemaRegistry.request.timeout.ms": "300",
        }
        subjects = Subjects(options, {})
        with ThreadPoolExecutor(8) as threads:
            results = [threads.submit(subjects.all) for _ in range(8)]
        assert all(isinstance(each.exception(), UnreachableRegistryError) for each in results)
        subjects.close()
        with pytest.raises(RegistryError):
            subjects.all()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"a":1,"b":[true]}', '{\n  "a": 1,\n  "b": [\n    true\n  ]\n}'),
        ('{"a":1,"a":2}', '{"a":1,"a":2}'),
        ('{"big":1e999}', '{"big":1e999}'),
        ("[" * 100_000, "[" * 100_000),
        ("not JSON", "not JSON"),
        (r'["\ud800", "\u202e"]', '[\n  "\\ud800",\n  "\\u202e"\n]'),
    ],
)
def test_a_schema_is_shown_as_it_is(text: str, expected: str) -> None:
    assert shown_text(RegisteredSchema(JSON_SCHEMA, text)) == expected


def test_no_registry_is_named() -> None:
    with closing(Site(Given())) as site:
        assert "--registry URL" in shown(REGISTRY, site)

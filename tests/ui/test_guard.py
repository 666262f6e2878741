from __future__ import annotations

import http.client
import re
from collections.abc import Iterator, Mapping
from contextlib import closing
from http.client import HTTPResponse

import pytest

from sparkonce.jobs.ui.guard import HEADERS
from sparkonce.jobs.ui.server import UiServer
from sparkonce.jobs.ui.site import Given, Site

TOKEN = "a-token-for-tests"


def ask(
    ui: UiServer, path: str = "/topics", method: str = "GET", headers: Mapping[str, str] | None = None, body: str = ""
) -> tuple[HTTPResponse, str]:
    port = int(ui.url.rstrip("/").rsplit(":", 1)[1])
    with closing(http.client.HTTPConnection("127.0.0.1", port)) as connection:
        connection.request(method, path, body or None, {"Host": f"127.0.0.1:{port}", **(headers or {})})
        response = connection.getresponse()
        return response, response.read().decode()


@pytest.fixture(scope="module")
def open_ui() -> Iterator[UiServer]:
    with closing(Site(Given())) as site, UiServer(site) as made:
        yield made


@pytest.fixture(scope="module")
def closed_ui() -> Iterator[UiServer]:
    with closing(Site(Given())) as site, UiServer(site, token=TOKEN) as made:
        yield made


def test_every_answer_forbids_what_is_from_elsewhere(open_ui: UiServer) -> None:
    for path in ("/topics", "/static/ui.js", "/nothing", "/static/nothing", "/static/../app.py"):
        response, _ = ask(open_ui, path)
        assert {name: response.headers[name] for name in HEADERS} == HEADERS
        assert response.headers["Server"] is None


def test_no_page_has_a_script_or_a_style_of_its_own(open_ui: UiServer) -> None:
    for path in ("/topics", "/groups", "/transactions", "/brokers"):
        response, text = ask(open_ui, path)
        assert response.status == 200
        assert not re.search(r"<script(?! src=\"/static/)|<style|style=|onclick=|https?://", text)


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:80",
        "",
        "127.0.0.1.evil.example",
        "[::2]",
        "[",
        "a]b",
        "127.0.0.1/x?",
        "127.0.0.1#x",
        "x@127.0.0.1",
    ],
)
def test_a_name_that_is_not_ours_is_refused(open_ui: UiServer, host: str) -> None:
    response, text = ask(open_ui, headers={"Host": host})
    assert response.status == 400
    assert "call it by 127.0.0.1" in text


@pytest.mark.parametrize("host", ["127.0.0.1:99999", "127.0.0.1:x", "localhost:-1"])
def test_a_port_that_is_none_is_refused(open_ui: UiServer, closed_ui: UiServer, host: str) -> None:
    for ui in (open_ui, closed_ui):
        response, _ = ask(ui, headers={"Host": host})
        assert response.status == 400


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
@pytest.mark.parametrize("path", ["/topics/messages?offset=1", "/topics?live=", "/static/ui.js"])
def test_a_page_elsewhere_loads_nothing(open_ui: UiServer, site: str, path: str) -> None:
    for mode, dest in (("no-cors", "image"), ("cors", "empty"), ("navigate", "iframe")):
        headers = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": mode, "Sec-Fetch-Dest": dest}
        response, _ = ask(open_ui, path, headers=headers)
        assert response.status == 403


def test_a_page_elsewhere_may_lead_here(open_ui: UiServer) -> None:
    for site in ("cross-site", "same-site", "none", "same-origin"):
        headers = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
        response, _ = ask(open_ui, headers=headers)
        assert response.status == 200


@pytest.mark.parametrize(
    "path", ["/static/../app.py", "/static/%2e%2e/app.py", "/static/..%2fguard.py", "/static//etc/passwd"]
)
def test_only_static_files_are_served(open_ui: UiServer, path: str) -> None:
    response, _ = ask(open_ui, path)
    assert response.status == 404


@pytest.mark.parametrize("origin", [None, "null", "http://evil.example", "https://127.0.0.1"])
def test_a_form_of_another_page_is_refused(open_ui: UiServer, origin: str | None) -> None:
    headers = {} if origin is None else {"Origin": origin}
    response, text = ask(open_ui, "/brokers", "POST", headers, "action=kill&broker=0")
    assert (response.status, text) == (403, "sparkonce ui: a form is accepted from these pages only\n")


def test_a_form_that_needs_a_permission_says_which(open_ui: UiServer) -> None:
    response, text = ask(open_ui, "/brokers", "POST", {"Origin": open_ui.url.rstrip("/")}, "action=kill&broker=0")
    assert response.status == 422
    assert "start them with --with-brokers and --allow-faults" in text


def test_without_the_token_nothing_is_served(closed_ui: UiServer) -> None:
    wrong = ({}, {"Authorization": "Bearer wrong"}, {"Cookie": "sparkonce-ui-=x"}, {"Authorization": f"Basic {TOKEN}"})
    for path in ("/topics", "/static/ui.js", "/topics?token=wrong", "/topics?live=", "/nothing"):
        for headers in wrong:
            response, text = ask(closed_ui, path, headers=headers)
            assert response.status == 401
            assert text == "sparkonce ui: a token is needed: open the address that `sparkonce ui` has printed\n"


def test_the_token_is_taken_out_of_the_address(closed_ui: UiServer) -> None:
    response, _ = ask(closed_ui, f"/topics?name=a&token={TOKEN}&internal=")
    assert (response.status, response.headers["Location"]) == (303, "/topics?name=a&internal=")
    cookie = response.headers["Set-Cookie"]
    assert TOKEN not in cookie
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    entered, _ = ask(closed_ui, headers={"Cookie": cookie.split(";")[0]})
    assert entered.status == 200
    again, _ = ask(closed_ui, f"/topics?token={TOKEN}&part=2", headers={"Cookie": cookie.split(";")[0]})
    assert (again.status, again.headers["Location"]) == (303, "/topics?part=2")


def test_the_redirect_stays_here(closed_ui: UiServer) -> None:
    response, _ = ask(closed_ui, f"//evil.example/?token={TOKEN}")
    assert response.headers["Location"] == "/evil.example/"


def test_a_bearer_enters(closed_ui: UiServer) -> None:
    response, _ = ask(closed_ui, headers={"Authorization": f"Bearer {TOKEN}"})
    assert response.status == 200


def test_another_address_than_loopback_has_a_token_even_if_none_was_given() -> None:
    with closing(Site(Given())) as site, UiServer(site, host="0.0.0.0", names=["a.example"]) as ui:
        token = re.fullmatch(r"http://.*/\?token=(\S{30,})", ui.entrance)
        assert token is not None
        response, _ = ask(ui)
        assert response.status == 401
        response, _ = ask(ui, headers={"Authorization": f"Bearer {token[1]}", "Host": "a.example"})
        assert response.status == 200

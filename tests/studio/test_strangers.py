"""Those who may not: without the token, from another site, with hostile parameters or too much to say."""

import http.client
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import numpy as np
import pytest
from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect
from tests.studio.chromium import serving_studio
from tests.studio.small_project import MPP, made_result, small_slide

from sparseshot.cells import Cells
from sparseshot.studio import guard as guard_module
from sparseshot.studio.api import make_api
from sparseshot.studio.guard import Guard, cookie_name
from sparseshot.studio.project import Project
from sparseshot.studio.studio import Studio

HERE = "http://127.0.0.1:8686"
SOCKET = "ws://127.0.0.1:8686/_nicegui_ws/socket.io"
FOREIGN: list[dict[str, str]] = [
    {"host": "evil.example"},
    {"host": "evil.example:8686"},
    {"host": "127.0.0.1.evil.example:8686"},
    {"host": "evil.example:127.0.0.1"},
    {"host": "127.0.0.1:8686@evil.example"},
    {"host": ""},
    {"origin": "http://evil.example"},
    {"origin": "http://127.0.0.1:9999"},
    {"origin": "http://127.0.0.1:8686.evil.example"},
    {"origin": "null"},
    {"origin": ""},
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site", "sec-fetch-mode": "no-cors"},
    *(
        {"sec-fetch-site": site, "sec-fetch-mode": "navigate", "sec-fetch-dest": dest}
        for site in ("cross-site", "same-site")
        for dest in ("iframe", "frame", "object", "embed")
    ),
]
COOKIE = cookie_name(8686)


@pytest.fixture(scope="module")
def studio(tmp_path_factory: pytest.TempPathFactory) -> Studio:
    folder = tmp_path_factory.mktemp("slide")
    slide, centres = small_slide(folder)
    made_result(folder / "found", slide, Cells(centres, score=np.full(len(centres), 0.9), mpp=MPP))
    return Studio.of(Project.open([slide, folder / "found"], folder=folder / "project", mpp=MPP))


@pytest.fixture(scope="module")
def client(studio: Studio) -> Iterator[TestClient]:
    app = Guard(make_api(studio), host="127.0.0.1", port=8686)
    with TestClient(app, base_url=HERE, raise_server_exceptions=False) as opened:
        yield opened


async def talkative(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer every WebSocket."""
    socket = WebSocket(scope, receive, send)
    await socket.accept()
    await socket.send_text("secret marks")
    await socket.close()


@pytest.mark.parametrize("headers", FOREIGN)
def test_foreign_pages_are_refused(client: TestClient, headers: dict[str, str]) -> None:
    assert client.get("/slides/1/state", headers=headers).status_code == 403
    assert client.post("/slides/1/marks", json=[], headers=headers).status_code == 403


@pytest.mark.parametrize("headers", FOREIGN)
def test_foreign_pages_get_no_websocket(headers: dict[str, str]) -> None:
    client = TestClient(Guard(talkative, host="127.0.0.1", port=8686), base_url=HERE)
    with client.websocket_connect(SOCKET, headers={"origin": HERE}) as socket:
        assert socket.receive_text() == "secret marks"
    with (
        pytest.raises(WebSocketDisconnect) as refused,
        client.websocket_connect(SOCKET, headers=headers) as socket,
    ):
        socket.receive_text()
    assert refused.value.code == 1008


def test_own_pages_and_links_are_served(client: TestClient) -> None:
    assert client.get("/slides/1/state", headers={"origin": HERE}).status_code == 200
    assert client.get("/slides/1/state", headers={"host": "localhost:8686"}).status_code == 200
    link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    assert client.get("/", headers=link).status_code == 404  # there is no page here, but it is asked for
    assert client.get("/slides/1/state", headers=link).status_code == 403


@pytest.mark.parametrize(
    "host", ["127.0.0.1:9000", "localhost:9000", "[::1]:9000", "localhost", "LOCALHOST:1"]
)
def test_a_tunnel_may_begin_at_another_port(client: TestClient, host: str) -> None:
    own = {"host": host, "origin": f"http://{host}"}
    assert client.get("/slides/1/state", headers=own).status_code == 200
    assert client.get("/slides/1/state", headers=own | {"origin": "http://localhost:9999"}).status_code == 403


def test_no_page_may_frame_an_answer(client: TestClient) -> None:
    for path, status in (
        ("/slides/1/state", 200),
        ("/slides/7/state", 404),
        ("/slides/1/tiles/0/0/0.jpg", 200),
    ):
        answer = client.get(path)
        assert answer.status_code == status
        assert answer.headers["content-security-policy"] == "frame-ancestors 'none'"
        assert answer.headers["x-frame-options"] == "DENY"
    assert client.get("/", headers={"host": "evil.example"}).headers["x-frame-options"] == "DENY"


def test_an_address_writes_no_escape_codes_to_the_terminal(tmp_path: Path) -> None:
    slide, _ = small_slide(tmp_path)
    errors = tmp_path / "errors"
    with serving_studio(slide, "--project", tmp_path / "project", "--mpp", MPP, errors=errors) as (
        address,
        _,
    ):
        assert _asked(address, {}, "/%1b%5B2Jevil") == 404
    said = errors.read_text()
    assert "\x1b" not in said
    assert r"/\x1b[2Jevil not found" in said


def test_studios_at_two_ports_have_cookies_of_their_own(studio: Studio) -> None:
    api = make_api(studio)
    clients = [
        TestClient(Guard(api, host="0.0.0.0", port=port, token=token), base_url=f"http://10.0.0.7:{port}")
        for port, token in ((8686, "one"), (8687, "two"))
    ]
    for client, token in zip(clients, ("one", "two"), strict=True):
        client.get(f"/?token={token}")
    clients[0].cookies.update(clients[1].cookies)  # a browser has one jar for all ports of a host
    assert [client.get("/slides/1/state").status_code for client in clients] == [200, 200]


def test_beyond_this_machine_a_token_is_needed(studio: Studio) -> None:
    app = Guard(make_api(studio), host="0.0.0.0", port=8686, token="secret")
    with TestClient(app, base_url="http://10.0.0.7:8686", follow_redirects=False) as client:
        assert client.get("/slides/1/state").status_code == 403
        assert client.get("/slides/1/state?token=wrong").status_code == 403
        assert client.get("/slides/1/state?token=").status_code == 403
        assert client.get("/slides/1/state", headers={"cookie": f"{COOKIE}=wrong"}).status_code == 403
        assert client.get("/slides/1/state", headers={b"cookie": f"{COOKIE}=é".encode()}).status_code == 403
        link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
        welcome = client.get("/?token=secret", headers=link)
        assert welcome.status_code == 303
        assert welcome.headers["location"] == "/"
        assert client.get("//evil.example/?token=secret").headers["location"] == "/"
        assert "samesite=lax" in welcome.headers["set-cookie"].lower()  # it is sent after the redirect
        assert client.get("/?slide=2&token=secret").headers["location"] == "/?slide=2"
        assert "httponly" in welcome.headers["set-cookie"].lower()
        assert client.get("/slides/1/state").status_code == 200
        assert client.get("/slides/1/state", headers={"origin": "http://evil.example"}).status_code == 403


@pytest.mark.parametrize("cookie", [None, "wrong", "", "secre", "secrett", "é"])
def test_a_websocket_needs_the_token_too(cookie: str | None) -> None:
    guarded = Guard(talkative, host="0.0.0.0", port=8686, token="secret")
    headers = {} if cookie is None else {b"cookie": f"{COOKIE}={cookie}".encode()}
    client = TestClient(guarded, base_url="http://10.0.0.7:8686")
    for path in ("/ws", "/ws?token=wrong"):
        with (
            pytest.raises(WebSocketDisconnect) as refused,
            client.websocket_connect(path, headers=headers) as socket,
        ):
            socket.receive_text()
        assert refused.value.code == 1008
    with client.websocket_connect("/ws", headers={"cookie": f"{COOKIE}=secret"}) as socket:
        assert socket.receive_text() == "secret marks"


def test_tokens_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []

    def same(given: bytes, token: bytes) -> bool:
        compared.append((given, token))
        return given == token

    monkeypatch.setattr(secrets, "compare_digest", same)
    TestClient(Guard(talkative, host="0.0.0.0", port=1, token="secret")).get("/?token=s")
    assert (b"s", b"secret") in compared


HOSTILE = [
    "../",
    "..",
    "../../etc/passwd",
    "..\\..",
    "/etc/passwd",
    "%2e%2e%2f",
    "1/../2",
    "-1",
    "1e3",
    "\0",
    "١",
]
_GOOD = {"slide": "1", "result": "f0", "what": "marks", "ending": "csv", "number": "1"}


def _routes(app: FastAPI | APIRouter) -> Iterator[APIRoute]:
    for route in app.routes:
        if isinstance(route, APIRoute):
            yield route
        elif (inner := getattr(route, "original_router", None)) is not None:  # since FastAPI 0.160
            yield from _routes(inner)


def test_every_parameter_in_an_address_refuses_paths(client: TestClient, studio: Studio) -> None:
    """Each parameter of each route in turn; the others are good."""
    asked = 0
    for route in _routes(make_api(studio)):
        names = list(route.param_convertors)
        for name in names:
            for value in HOSTILE:
                good = {each: _GOOD.get(each, "0") for each in names}
                path = route.path.format(**good | {name: quote(value, safe="")})
                for method in route.methods or ():
                    answer = client.request(method, path, json=[] if method == "POST" else None)
                    asked += 1
                    assert answer.status_code in {404, 405, 422}, (method, path, answer.text[:200])
                    assert "root:" not in answer.text
                    assert str(studio.project.folder.parent) not in answer.text
    assert asked > 200


def test_every_parameter_after_an_address_refuses_paths(client: TestClient, studio: Studio) -> None:
    before = {path: path.stat().st_mtime_ns for path in studio.project.folder.parent.rglob("*")}
    for route in _routes(make_api(studio)):
        path = route.path.format(**{each: _GOOD.get(each, "0") for each in route.param_convertors})
        for query in route.dependant.query_params:
            for value in HOSTILE:
                for method in route.methods or ():
                    answer = client.request(method, path, params={query.alias: value})
                    # A version or an area without sense is none; nothing else may pass.
                    is_harmless = query.alias == "since" and method == "GET"
                    assert answer.status_code in ({200} if is_harmless else {404, 405, 422}), (path, query)
                    assert str(studio.project.folder.parent) not in answer.text
    assert {path: path.stat().st_mtime_ns for path in studio.project.folder.parent.rglob("*")} == before


@pytest.mark.parametrize("value", HOSTILE)
def test_every_text_in_a_body_refuses_paths(client: TestClient, studio: Studio, value: str) -> None:
    """Keys, results, ids; a class may have nearly any name, because it is never one of a file."""
    verdict = {"key": "aaaaaaaa", "result": "f0", "area": [0, 0, 9, 9], "threshold": 0.5, "accept": True}
    bodies: list[tuple[str, Any]] = [
        ("/slides/1/judge", verdict | {"key": value}),
        ("/slides/1/judge", verdict | {"result": value}),
        ("/slides/1/marks", [{"key": value, "undo": True}]),
        ("/slides/1/marks", [{"key": "aaaaaaaa", "add": [{"class": "cell", "region": value}]}]),
        ("/classes", {"name": "T", "color": value}),
    ]
    for path, body in bodies:
        assert client.post(path, json=body).status_code == 422, (path, body)
    unknown = client.post("/slides/1/marks", json=[{"key": secrets.token_hex(8), "remove": [value]}])
    assert unknown.json()["all"] == []
    assert studio.book.items("1") == []


def test_a_body_that_is_too_large_is_refused_whatever_its_header_says(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard_module, "_MOST_BYTES_ELSE", 1000)
    monkeypatch.setattr(guard_module, "MOST_BYTES", 2000)
    monkeypatch.setattr(guard_module, "_FORM_BYTES", 0)

    def pieces() -> Iterator[bytes]:  # sent without a length
        yield b'[{"key": "aaaaaaaa", "remove": ["'
        yield from [b"x" * 100] * 20
        yield b'"]}]'

    assert client.post("/slides/1/marks", content=pieces()).status_code == 413
    assert client.post("/slides/1/marks", content=b" " * 1001).status_code == 413
    file = ("a.csv", b"x,y\n" + b"1,2\n" * 1000)
    assert client.post("/slides/1/import?key=dddddddd", files={"file": file}).status_code == 413
    small = ("a.csv", b"x,y\n" + b"1,2\n")
    assert client.post("/slides/1/import?key=dddddddd", files={"file": small}).status_code == 200
    client.post("/slides/1/marks", json=[{"key": "undo0000", "undo": True}])


def _asked(address: str, headers: dict[str, str], path: str = "/") -> int:
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=30)
    try:
        connection.request("GET", path, headers=headers)
        return connection.getresponse().status
    finally:
        connection.close()


def test_the_running_studio_refuses_strangers_at_its_websocket(tmp_path: Path) -> None:
    slide, _ = small_slide(tmp_path)
    upgrade = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    }
    path = "/_nicegui_ws/socket.io/?EIO=4&transport=websocket"
    with serving_studio(slide, "--project", tmp_path / "project", "--mpp", MPP) as (address, _):
        own = address.rstrip("/")
        assert _asked(address, upgrade | {"Origin": own}, path) == 101
        assert _asked(address, upgrade | {"Origin": "http://evil.example"}, path) == 403
        assert _asked(address, upgrade | {"Host": "evil.example"}, path) == 403
        assert _asked(address, {"Origin": own}) == 200
        assert _asked(address, {"Origin": "http://evil.example"}) == 403
    with serving_studio(slide, "--project", tmp_path / "other", "--mpp", MPP, "--host", "0.0.0.0") as (
        address,
        _,
    ):
        token = urlsplit(address).query.removeprefix("token=")
        assert len(token) >= 32
        here = f"http://127.0.0.1:{urlsplit(address).port}"
        cookie = cookie_name(urlsplit(address).port or 0)
        assert _asked(here, upgrade, path) == 403
        assert _asked(here, upgrade | {"Cookie": f"{cookie}={token[:-1]}"}, path) == 403
        assert _asked(here, upgrade | {"Cookie": f"{cookie}={token}"}, path) == 101
        assert _asked(here, upgrade | {"Cookie": f"{cookie}={token}", "Origin": "http://x"}, path) == 403
        assert _asked(here, {}) == 403
        assert _asked(here, {}, f"/?token={token}") == 303

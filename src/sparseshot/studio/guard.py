"""Access control of the studio, and limits on the size of requests.

Only its own pages have access. From other machines they need a token too.
"""

import re
import secrets
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse, RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MOST_BYTES = 256 * 2**20
"""Largest file that may be imported."""

_MOST_BYTES_ELSE = 16 * 2**20
_FORM_BYTES = 2**16
_LOCAL_NAMES = ("127.0.0.1", "localhost", "[::1]")
_UNFRAMED = {"Content-Security-Policy": "frame-ancestors 'none'", "X-Frame-Options": "DENY"}
"""A page that frames ours could lead a person to click in it."""


class Guard:
    """ASGI middleware that refuses strangers, for HTTP and WebSocket alike.

    The name in ``Host`` must be one of ours, or a foreign page could reach us by a name of its own that it
    makes point here. The port may be any: it is another one at the near end of a tunnel. A request that
    another site's page makes names that site in ``Origin`` or says so in ``Sec-Fetch-Site``; it may only link
    to the page itself. With a token, every request needs it: in the address once, then in a cookie.
    """

    def __init__(self, app: ASGIApp, *, host: str, port: int, token: str | None = None) -> None:
        self._app, self._token = app, token
        names = "|".join(map(re.escape, {host, *_LOCAL_NAMES}))
        self._host = re.compile(rf"({names})(:\d{{1,5}})?" if token is None else ".*")
        self._cookie_name = cookie_name(port)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] not in {"http", "websocket"}:
            await self._app(scope, receive, send)
            return
        connection, send = HTTPConnection(scope), _unframed(send)
        reason = self._refusal(scope["path"], connection.headers)
        if reason is None and self._token is not None:
            if scope["type"] == "http" and _same(connection.query_params.get("token", ""), self._token):
                await self._welcome(scope, receive, send)
                return
            if not _same(connection.cookies.get(self._cookie_name, ""), self._token):
                reason = "open the address with the token that `sparseshot studio` printed"
        if reason is None:
            await self._app(scope, _bounded(scope, receive) if scope["type"] == "http" else receive, send)
        elif scope["type"] == "http":
            await PlainTextResponse(f"refused: {reason}\n", 403)(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008})

    def _refusal(self, path: str, headers: Headers) -> str | None:
        host, origin = headers.get("host", ""), headers.get("origin")
        if not self._host.fullmatch(host.lower()):
            return "this is not the address of the studio"
        if origin is not None and urlsplit(origin).netloc.lower() != host.lower():
            return "the request comes from another site's page"
        foreign = headers.get("sec-fetch-site") in {"cross-site", "same-site"}
        link = headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest")
        if foreign and (path != "/" or link != ("navigate", "document")):
            return "the request comes from another site's page"
        return None

    async def _welcome(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Keep the token in a cookie, and lead to the page without it in the address."""
        query = HTTPConnection(scope).url.remove_query_params("token").query
        # Always "/": a path such as //evil.example/ would lead elsewhere.
        response = RedirectResponse(f"/?{query}" if query else "/", 303)
        # With "strict", a browser that comes from a link in a mail would not send it after the redirect.
        # Requests that change something are refused to other sites by their headers.
        response.set_cookie(self._cookie_name, self._token or "", httponly=True, samesite="lax")
        await response(scope, receive, send)


def _bounded(scope: Scope, receive: Receive) -> Receive:
    """Return a ``receive`` that refuses a body which is too large, whatever its header says."""
    most = MOST_BYTES + _FORM_BYTES if scope["path"].endswith("/import") else _MOST_BYTES_ELSE
    received = 0

    async def counted() -> Message:
        nonlocal received
        message = await receive()
        received += len(message.get("body", b""))
        if received > most:
            raise HTTPException(413, f"at most {most // 2**20} MB are taken")
        return message

    return counted


def _same(given: str, token: str) -> bool:
    return secrets.compare_digest(given.encode(), token.encode())


def cookie_name(port: int) -> str:
    """Return the cookie of the studio at a port; browsers share cookies between the ports of a host."""
    return f"sparseshot-studio-{port}"


def _unframed(send: Send) -> Send:
    """Return a ``send`` whose answers no other page may frame."""

    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message).update(_UNFRAMED)
        await send(message)

    return sent

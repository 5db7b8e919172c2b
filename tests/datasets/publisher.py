"""A publisher on this machine, with the moods of real ones."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread


@dataclass
class Publisher:
    """Serves one file.

    Attributes:
        content: the file.
        etag: changes when the file does; None sends none.
        ranges: whether it can send a part.
        cuts: for each request to come, after how many bytes it breaks off.
        status: what it answers with.
        requests: the headers of the requests that came.
    """

    content: bytes = b""
    etag: str | None = '"first"'
    modified: str | None = None
    ranges: bool = True
    cuts: list[int] = field(default_factory=list)
    status: int = 200
    requests: list[dict[str, str]] = field(default_factory=list)
    address: str = ""

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        self.requests.append(dict(request.headers))
        if self.status != 200:
            request.send_error(self.status)
            return
        begin = self._begin(request)
        if begin and begin >= len(self.content):
            request.send_response(416)
            request.send_header("Content-Range", f"bytes */{len(self.content)}")
            request.send_header("Content-Length", "0")
            request.end_headers()
            return
        body = self.content[begin:]
        request.send_response(206 if begin else 200)
        if begin:
            request.send_header("Content-Range", f"bytes {begin}-{len(self.content) - 1}/{len(self.content)}")
        request.send_header("Content-Length", str(len(body)))
        if self.etag:
            request.send_header("ETag", self.etag)
        if self.modified:
            request.send_header("Last-Modified", self.modified)
        request.end_headers()
        request.wfile.write(body[: self.cuts.pop(0)] if self.cuts else body)

    def _begin(self, request: BaseHTTPRequestHandler) -> int:
        asked = request.headers.get("Range")
        same = request.headers.get("If-Range") in {self.etag, self.modified}
        return int(asked.removeprefix("bytes=").rstrip("-")) if asked and self.ranges and same else 0


@contextmanager
def publishing() -> Iterator[Publisher]:
    publisher = Publisher()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            publisher.answer(self)

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    publisher.address = f"http://127.0.0.1:{server.server_port}/set.zip"
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield publisher
    finally:
        server.shutdown()
        thread.join()
        server.server_close()

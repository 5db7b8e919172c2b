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
        cut: after how many bytes the connection breaks off; None: never.
        status: what it answers with.
        requests: the headers of the requests that came.
    """

    content: bytes = b""
    cut: int | None = None
    status: int = 200
    requests: list[dict[str, str]] = field(default_factory=list)
    address: str = ""

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        self.requests.append(dict(request.headers))
        if self.status != 200:
            request.send_error(self.status)
            return
        request.send_response(200)
        request.send_header("Content-Length", str(len(self.content)))
        request.end_headers()
        request.wfile.write(self.content[: self.cut])


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

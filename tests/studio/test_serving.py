import socket

import pytest

from sparseshot.studio.serving import address_of


@pytest.mark.parametrize(
    ("host", "address"),
    [("127.0.0.1", "http://127.0.0.1:8686/"), ("::1", "http://[::1]:8686/"), ("lab7", "http://lab7:8686/")],
)
def test_an_address_can_be_opened(host: str, address: str) -> None:
    assert address_of(host, 8686) == address


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_every_address_is_printed_as_that_of_this_machine(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert address_of(host, 1) not in {"http://0.0.0.0:1/", "http://[::]:1/", "http://127.0.0.1:1/"}

    def no_network(*_: object) -> None:
        raise OSError("Network is unreachable")

    monkeypatch.setattr(socket.socket, "connect", no_network)
    assert address_of(host, 1) == f"http://{socket.gethostname()}:1/"

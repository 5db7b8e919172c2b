"""Processes that begin with everything loaded, because a server forks them.

To import PyTorch and the package takes seconds, and few of the tests with several processes are about that.
"""

import multiprocessing
import os
import socket
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from typing import Any


def process(function: Callable[..., object], *arguments: object) -> BaseProcess:
    """Start a function of a module in a process of its own."""
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(["tests.prediction.victim", "tests.training.blobs", "lightning_fabric"])
    child = processes.Process(target=function, args=arguments)
    child.start()
    return child


def side_by_side(function: Callable[..., object], *arguments: object, ranks: int = 2) -> None:
    """Run a function in processes that know each other as if ``torchrun`` had started them."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    children = [process(_run_as, rank, ranks, port, function, arguments) for rank in range(ranks)]
    try:
        for child in children:
            child.join(240)
        assert [child.exitcode for child in children] == [0] * ranks
    finally:
        for child in children:
            child.kill()


def _run_as(
    rank: int, ranks: int, port: int, function: Callable[..., object], arguments: tuple[Any, ...]
) -> None:
    os.environ |= {
        "TORCHELASTIC_RUN_ID": "test",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(ranks),
        "LOCAL_WORLD_SIZE": str(ranks),
    }
    function(*arguments)

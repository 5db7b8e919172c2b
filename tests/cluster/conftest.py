"""One Ray cluster of three nodes on this machine, for all tests."""

import logging
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

NODE: dict[str, Any] = {
    "num_cpus": 1,
    "object_store_memory": 80_000_000,
    "node_ip_address": "127.0.0.2",  # Ray would take 127.0.0.1 for the address of the network card
    "include_dashboard": False,
}


@dataclass
class Nodes:
    """A cluster whose nodes can be removed, and come back."""

    cluster: Any
    added: list[Any] = field(default_factory=list)

    @property
    def address(self) -> str:
        return str(self.cluster.address)

    def add(self) -> None:
        self.added.append(self.cluster.add_node(**NODE))

    def remove_without_grace(self) -> None:
        self.cluster.remove_node(self.added.pop(0), allow_graceful=False)

    def workers(self, title: bytes) -> list[int]:
        """Return the processes of this cluster that run a function."""
        raylets = {
            each.process.pid
            for node in self.cluster.list_all_nodes()
            for each in node.all_processes.get("raylet", [])
        }
        found = []
        for status in Path("/proc").glob("[0-9]*/stat"):
            try:
                parent = int(status.read_text().rpartition(") ")[2].split()[1])
                if parent in raylets and title in status.with_name("cmdline").read_bytes():
                    found.append(int(status.parent.name))
            except (FileNotFoundError, ProcessLookupError):
                continue
        return found


@pytest.fixture(scope="session")
def nodes() -> Iterator[Nodes]:
    """Start a head and two nodes, and join them; this takes longer than any of the tests."""
    ray = pytest.importorskip("ray", reason="Ray is an extra: sparseshot[cluster]")
    if not Path("/proc/self/stat").exists():
        pytest.skip("needs /proc")
    from ray.cluster_utils import Cluster

    folder = tempfile.mkdtemp(prefix="ray")  # short, for the names of sockets
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.delenv("RAY_ADDRESS", raising=False)
        patch.setenv("RAY_TMPDIR", folder)  # an option only moves some files; the rest asks for /tmp/ray
        there = Nodes(Cluster(initialize_head=True, head_node_args=NODE))
        try:
            there.add()
            there.add()
            ray.init(address=there.address, log_to_driver=False, logging_level=logging.ERROR)
            yield there
        finally:
            ray.shutdown()
            there.cluster.shutdown()
            shutil.rmtree(folder, ignore_errors=True)

"""Joining a Ray cluster, and what is checked before anything runs on it."""

import logging
import os
import secrets
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparseshot.errors import ClusterError, OutputError

_CONNECT_SECONDS = 5.0
_SETTINGS = b"\x04"
_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + _SETTINGS + bytes(5)
"""How HTTP/2 begins, which Ray speaks; its server answers with a frame of the same kind."""

_CHECK_SECONDS = 120.0
_REFRESH_SECONDS = 5.0


RETRIES = 3
"""Retries of a task whose worker or node was lost."""


@dataclass(frozen=True)
class Needs:
    """What a task takes of a node.

    Attributes:
        cpus: number of CPUs.
        gpus: number of GPUs.
        memory_bytes: of main memory; 0 to ignore it.
    """

    cpus: int = 1
    gpus: int = 0
    memory_bytes: int = 0

    def options(self) -> dict[str, Any]:
        """Return the options of a Ray task."""
        memory = {"memory": self.memory_bytes} if self.memory_bytes else {}
        return {"num_cpus": self.cpus, "num_gpus": self.gpus, "max_retries": RETRIES, **memory}


@dataclass
class RayCluster:
    """A Ray cluster that this process has joined.

    Attributes:
        device: ``auto`` takes GPUs where the cluster has any; otherwise a name that PyTorch knows.
        stays: whether this process stays in the cluster when its work has ended.
    """

    device: str = "auto"
    stays: bool = True
    _nodes: tuple[float, list[dict[str, float]]] = (0.0, [])

    def nodes(self) -> list[dict[str, float]]:
        """Return the resources of every node that is alive; refreshed every few seconds."""
        import ray  # noqa: PLC0415  an extra

        asked, nodes = self._nodes
        if not nodes or time.monotonic() - asked > _REFRESH_SECONDS:
            nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
            self._nodes = time.monotonic(), nodes
        return nodes

    @property
    def has_gpus(self) -> bool:
        """Whether tasks run on GPUs."""
        wanted = self.device == "auto" or self.device.startswith("cuda")
        return wanted and any(node.get("GPU", 0) >= 1 for node in self.nodes())

    def needs(self, *, cpus: int = 1, memory_bytes: int = 0) -> Needs:
        """Return what a task takes: a GPU if there are any, and CPUs.

        Args:
            cpus: unless ``OMP_NUM_THREADS`` says otherwise.
            memory_bytes: of main memory.
        """
        if self.device.startswith("cuda") and not self.has_gpus:
            raise ClusterError(f"the device is {self.device}, but no node of the cluster has a GPU; try auto")
        cpus = int(os.environ.get("OMP_NUM_THREADS") or cpus)
        needs = Needs(cpus, int(self.has_gpus), memory_bytes)
        if not self._slots(needs):
            most = max((node.get("CPU", 0) for node in self.nodes()), default=0)
            raise ClusterError(
                f"no node of the cluster has room for a task of {cpus} CPUs and {memory_bytes >> 20} MB; the "
                f"largest has {most:g} CPUs. Set OMP_NUM_THREADS to the CPUs that a task may take"
            )
        return needs

    def slots(self, needs: Needs) -> int:
        """Return how many tasks the nodes have room for; at least one, because a node may return."""
        return max(1, self._slots(needs))

    def _slots(self, needs: Needs) -> int:
        asked = {"CPU": needs.cpus, "GPU": needs.gpus, "memory": needs.memory_bytes}
        return sum(
            min(int(node.get(name, 0) // count) for name, count in asked.items() if count)
            for node in self.nodes()
        )

    def on_this_node(self) -> dict[str, Any]:
        """Return the options of an actor that lives as long as this process's node."""
        import ray  # noqa: PLC0415

        return _on_node(ray.get_runtime_context().get_node_id())

    def check(self, out: Path, inputs: Sequence[Path] = ()) -> None:
        """Check that every node has the same versions and sees the same files.

        Args:
            out: folder of the results; every node writes a file there, which the others must see.
            inputs: files or folders that every node has to read.

        Raises:
            ClusterError: versions differ, or an input is missing on a node.
            OutputError: a node does not share the folder.
        """
        import ray  # noqa: PLC0415

        ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # a node may lack sparseshot
        probe = out / f".probe-{secrets.token_hex(8)}"
        probe.write_text(probe.name)
        here = _inspect(str(probe), f"{probe}-here", [])["versions"]
        alive = [node for node in ray.nodes() if node["Alive"]]
        try:
            answers = [
                ray.remote(_inspect)
                .options(num_cpus=0, **_on_node(node["NodeID"]))
                .remote(str(probe), f"{probe}-{number}", [str(path) for path in inputs])
                for number, node in enumerate(alive)
            ]
            for number, (node, answer) in enumerate(zip(alive, answers, strict=True)):
                name = f"{node['NodeManagerHostname']} ({node['NodeManagerAddress']})"
                try:
                    said = ray.get(answer, timeout=_CHECK_SECONDS)
                except (ray.exceptions.TaskUnschedulableError, ray.exceptions.NodeDiedError):
                    continue  # the node was lost, so nothing will run on it
                except ray.exceptions.RayError as error:
                    reason = str(error).strip().splitlines()[-1]
                    raise ClusterError(f"the node {name} does not answer: {reason}") from error
                for package, wanted in here.items():
                    if (there := said["versions"][package]) != wanted:
                        raise ClusterError(
                            f"the node {name} has {package} {there}, this machine {wanted}; results would "
                            "depend on the node. Install the same versions everywhere"
                        )
                if not (said["shared"] and Path(f"{probe}-{number}").exists()):
                    raise OutputError(
                        out,
                        f"is not shared with the node {name}: a file written here is not seen there, or the "
                        "other way round; choose a folder on a file system that all nodes have",
                    )
                if said["missing"]:
                    raise ClusterError(
                        f"the node {name} does not see {said['missing'][0]}; put it on a file system that "
                        "all nodes have, under the same path"
                    )
        finally:
            for path in out.glob(f"{probe.name}*"):
                path.unlink(missing_ok=True)


@contextmanager
def joined(address: str, *, device: str = "auto") -> Iterator[RayCluster]:
    """Join a running Ray cluster until the block ends.

    Args:
        address: ``host:port`` of its head, or ``auto`` for ``RAY_ADDRESS`` or the cluster of this machine.
        device: see :class:`RayCluster`.

    Raises:
        ClusterError: Ray is not installed, or there is no cluster.
    """
    # Ray writes to this terminal that it will change something, and pages of logs of a node that was lost.
    for name, value in {"RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0", "RAY_DEDUP_LOGS_SKIP_REGEX": "^"}.items():
        os.environ.setdefault(name, value)
    try:
        import ray  # noqa: PLC0415
    except ImportError as error:
        raise ClusterError(
            'a cluster needs Ray, which is not installed; install it with: pip install "sparseshot[cluster]"'
        ) from error
    if ray.is_initialized():  # by the caller
        yield RayCluster(device)
        return
    _check_address(address)
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except Exception as error:
        raise ClusterError(_no_cluster(address, error)) from error
    try:
        yield RayCluster(device, stays=False)
    finally:
        ray.shutdown()


def _on_node(node: str) -> dict[str, Any]:
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy  # noqa: PLC0415

    return {"scheduling_strategy": NodeAffinitySchedulingStrategy(node, soft=False)}


def _check_address(address: str) -> None:
    """Raise ClusterError if no Ray listens at an address; Ray itself would try for many minutes."""
    from ray._private import services  # noqa: PLC0415

    try:
        place = services.canonicalize_bootstrap_address(address)
    except (ConnectionError, ValueError) as error:
        raise ClusterError(_no_cluster(address, error)) from error
    except AttributeError:  # another version of Ray
        return
    if place is None or "://" in address:
        return
    host, _, port = place.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS) as connection:
            connection.sendall(_GREETING)
            if connection.recv(9)[3:4] != _SETTINGS and os.environ.get("RAY_USE_TLS", "0") == "0":
                raise ConnectionError("something else than Ray answers")
    except (OSError, ValueError) as error:
        raise ClusterError(_no_cluster(place if address == "auto" else address, error)) from error


def _no_cluster(address: str, error: Exception) -> str:
    reason = " ".join(str(error).split())
    if "mismatch" in reason.lower():
        return f"the cluster at {address} has other versions than this machine: {reason}"
    where = "at RAY_ADDRESS or on this machine" if address == "auto" else f"at {address} ({reason[:200]})"
    return (
        f"no Ray cluster {where}. Start one with `ray start --head`, add machines with "
        "`ray start --address=HEAD:6379`, and run this command on one of them"
    )


def _inspect(probe: str, answer: str, inputs: list[str]) -> dict[str, Any]:
    """Return versions, whether a probe is seen, and missing inputs; uses no name of this module."""
    import platform  # noqa: PLC0415
    from importlib import import_module, metadata  # noqa: PLC0415
    from pathlib import Path  # noqa: PLC0415

    versions = {"python": platform.python_version()}
    for name in ("sparseshot", "torch", "numpy", "ray", "openvino"):
        try:
            if name == "openvino":  # whose import reports to its makers
                versions[name] = metadata.version(name)
            else:
                versions[name] = str(import_module(name).__version__)
        except ImportError:
            versions[name] = "not installed"
    shared = Path(probe).is_file()
    if shared:
        Path(answer).touch()
    missing = [path for path in inputs if not Path(path).exists()]
    return {"versions": versions, "missing": missing, "shared": shared}

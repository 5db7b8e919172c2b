"""Networks of one's own, by the name ``module:function``."""

from torch import nn

from sparseshot.errors import InputError
from sparseshot.losses.registry import find_own
from sparseshot.models.task import Task


def make_own_network(name: str, task: Task) -> nn.Module:
    """Import the module that ``module:function`` names, and return the network that the function makes.

    Args:
        name: given by the user. A name that is only in a model must not come here: to import is to run code.
        task: the function's only argument. Its ``out_channels`` and ``stride`` say what the network returns:
            ``(N, out_channels, rows, cols)`` with a row for every ``stride`` pixels, and for a detector two
            channels more, the place of the cell within a location.
    """
    made = find_own("network", name)
    if not callable(made):
        raise InputError(
            f"network {name!r} is no function; name one that takes the task and returns a network"
        )
    network = made(task)
    if not isinstance(network, nn.Module):
        raise InputError(f"network {name!r} returned {type(network).__name__}; return a torch.nn.Module")
    return network

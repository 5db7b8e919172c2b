"""Events that work reports."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Event:
    """Progress of a piece of work.

    Attributes:
        stage: what is being done, such as ``training``.
        done: how much of the stage is done.
        total: all of the stage; None if it is unknown.
        values: numbers of the moment, such as the loss.
        message: a short note for people.
    """

    stage: str
    done: int = 0
    total: int | None = None
    values: Mapping[str, Any] = field(default_factory=dict)
    message: str = ""

    @property
    def share(self) -> float:
        """Completed part of the stage, 0 to 1.

        >>> Event("training", 50, 200).share
        0.25
        """
        return min(1.0, self.done / self.total) if self.total else 0.0


Report = Callable[[Event], None]
"""Receives events; it may raise to stop the work."""


def ignore(event: Event) -> None:
    """Receive an event and do nothing."""

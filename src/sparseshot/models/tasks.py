"""The tasks by name."""

from collections.abc import Mapping
from types import MappingProxyType

from sparseshot.models.detect import Detect
from sparseshot.models.segment import Segment

TASKS: Mapping[str, type[Segment] | type[Detect]] = MappingProxyType(
    {task.name: task for task in (Segment, Detect)}
)

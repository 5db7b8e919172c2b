"""Work of any kind: the folder it is done in, the progress it reports, and where it runs.

A *recipe* is a frozen dataclass that decides every byte of a result.
"""

from sparseshot.work.folder import File, State, WorkFolder
from sparseshot.work.progress import Event, Report, ignore
from sparseshot.work.runner import Here, Job, Processes, Runner, Update

__all__ = [
    "Event",
    "File",
    "Here",
    "Job",
    "Processes",
    "Report",
    "Runner",
    "State",
    "Update",
    "WorkFolder",
    "ignore",
]

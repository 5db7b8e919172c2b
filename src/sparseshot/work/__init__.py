"""Work of any kind: the folder it is done in, the progress it reports, and where it runs.

A *recipe* is a frozen dataclass that decides every byte of a result.
"""

from sparseshot.work.folder import Event, File, Report, State, WorkFolder, ignore
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

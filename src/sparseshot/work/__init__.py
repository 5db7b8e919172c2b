"""Work of any kind: the folder it is done in, and the progress it reports.

A *recipe* is a frozen dataclass that decides every byte of a result.
"""

from sparseshot.work.folder import File, State, WorkFolder
from sparseshot.work.progress import Event, Report, ignore

__all__ = ["Event", "File", "Report", "State", "WorkFolder", "ignore"]

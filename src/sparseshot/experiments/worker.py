"""The process of one run: ``python -m sparseshot.experiments.worker FOLDER``.

It ends when whoever started it ends: their end of its standard input closes, however they died.
"""

import os
import signal
import stat
import sys
import threading
import traceback
from pathlib import Path

from sparseshot.experiments.folders import RUN, read_json, write_error
from sparseshot.experiments.performing import perform
from sparseshot.experiments.plan import Run

STOPPED = 3
"""Exit code of a worker that was left alone."""


def main(folder: Path) -> int:
    """Do the run that stands in ``folder``; give 0, or 1 after writing down what went wrong."""
    end_with_the_starter()
    try:
        told = read_json(folder / RUN)
        root = None if told["root"] is None else Path(told["root"])
        perform(Run.from_json(told["run"]), root, folder)
    except Exception as error:  # whatever it is, it belongs to this run alone
        traceback.print_exc()
        write_error(folder, kind=type(error).__name__, message=str(error) or type(error).__name__)
        return 1
    return 0


def end_with_the_starter() -> None:
    """End this process when standard input closes; leave Ctrl-C to whoever started it, who then closes it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if stat.S_ISFIFO(os.fstat(0).st_mode):  # started by hand, the input may be anything
        threading.Thread(target=_wait_for_the_end, daemon=True).start()


def _wait_for_the_end() -> None:
    os.read(0, 1)
    os._exit(STOPPED)  # training is in C code much of the time, and would not hear anything gentler


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))

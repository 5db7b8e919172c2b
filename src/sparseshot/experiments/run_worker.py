"""The process of one run: ``python -m sparseshot.experiments.run_worker FOLDER``.

It ends when the process that started it ends, because then its standard input closes.
"""

import os
import signal
import stat
import sys
import threading
import traceback
from pathlib import Path

from sparseshot.experiments.experiment import Run
from sparseshot.experiments.folders import RUN, read_json, write_error
from sparseshot.experiments.performing import perform

STOPPED = 3
"""Exit code of a worker whose standard input was closed."""


def main(folder: Path) -> int:
    """Do the run described in ``folder``; return 0, or 1 after recording the error."""
    end_with_parent()
    try:
        values = read_json(folder / RUN)
        root = None if values["root"] is None else Path(values["root"])
        perform(Run.from_json(values["run"]), root, folder)
    except Exception as error:  # any error concerns this run alone
        traceback.print_exc()
        write_error(folder, kind=type(error).__name__, message=str(error) or type(error).__name__)
        return 1
    return 0


def end_with_parent() -> None:
    """End this process when its standard input closes; leave Ctrl-C to the process that started it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if stat.S_ISFIFO(os.fstat(0).st_mode):  # started by hand, the input may be anything
        threading.Thread(target=_end_with_input, daemon=True).start()


def _end_with_input() -> None:
    os.read(0, 1)
    os._exit(STOPPED)  # training is in C code most of the time, which no gentler way interrupts


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))

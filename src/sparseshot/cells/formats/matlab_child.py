"""Reads .mat files in a process of its own, since SciPy's reader can be crashed by a damaged file.

Run as a script, it answers each path on its input, a line of JSON, by a number of bytes and these bytes: an
``.npz`` of the wanted variables, or ``error: `` and a message. It imports nothing of sparseshot, so that it
starts fast.
"""

import io
import json
import sys
from typing import Any

LARGEST_MEMORY = 4 << 30
WANTED = ("inst_map", "type_map", "inst_type", "class_names", "detection")


def main() -> None:
    """Answer requests until the input ends."""
    try:
        import resource  # noqa: PLC0415  missing on Windows

        resource.setrlimit(resource.RLIMIT_AS, (LARGEST_MEMORY, LARGEST_MEMORY))
    except (ImportError, ValueError, OSError):
        pass  # a lower limit is in force
    for line in sys.stdin:
        try:
            answer = _variables(json.loads(line))
        except NotImplementedError:
            answer = b"error: is MATLAB 7.3; save it with -v7"
        except Exception as error:
            answer = f"error: cannot be read as .mat: {error!r}".encode()
        sys.stdout.buffer.write(len(answer).to_bytes(8, "little") + answer)
        sys.stdout.buffer.flush()


def _variables(path: str) -> bytes:
    import numpy as np  # noqa: PLC0415
    import scipy.io  # noqa: PLC0415

    found = [name for name, _, _ in scipy.io.whosmat(path)]
    if not {"inst_map", "detection"} & set(found):
        return f"error: holds {', '.join(found) or 'nothing'}; inst_map or detection is needed".encode()
    content: dict[str, Any] = scipy.io.loadmat(path, variable_names=WANTED)
    arrays: dict[str, Any] = {name: np.asarray(content[name]) for name in WANTED if name in content}
    for name, array in arrays.items():
        if array.dtype.kind == "O":  # a cell array of texts
            arrays[name] = np.array([str(np.squeeze(each)) for each in array.ravel()])
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    return buffer.getvalue()


if __name__ == "__main__":
    main()

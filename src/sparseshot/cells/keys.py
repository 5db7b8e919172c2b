"""Pseudo-random keys of ids, equal on every machine."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparseshot.compiled import compiled


def keys_of(ids: NDArray[Any], *, salt: int = 0) -> NDArray[np.uint64]:
    """Return a 64-bit key for each id; keys of different salts are independent.

    The mixing is that of SplitMix64 (Steele et al., 2014). It is a bijection, so that numbers never share
    a key; two texts do with probability 2⁻⁶⁴.

    Args:
        ids: ``(N,)`` whole numbers or bytes; padding of the bytes makes no difference.
        salt: any whole number.

    >>> keys_of(np.array([0, 1]))
    array([16294208416658607535, 10451216379200822465], dtype=uint64)
    """
    start = np.uint64(salt % 2**64)
    if ids.dtype.kind in "iu":
        words = ids.astype(np.int64, copy=False).view(np.uint64).reshape(-1, 1)
        return _keys(words, start)  # type: ignore[no-any-return]
    width = -(-max(ids.dtype.itemsize, 1) // 8) * 8
    words = np.ascontiguousarray(ids, dtype=f"S{width}").view("<u8").astype(np.uint64, copy=False)
    return _keys(words.reshape(len(ids), width // 8), start)  # type: ignore[no-any-return]


@compiled
def _keys(words: Any, start: Any) -> Any:
    keys = np.empty(len(words), np.uint64)
    for row in range(len(words)):
        key = start
        for k in range(words.shape[1]):
            if k == 0 or words[row, k]:  # what follows the text is padding
                key = mixed((key ^ words[row, k]) + np.uint64(k + 1) * np.uint64(0x9E3779B97F4A7C15))
        keys[row] = key
    return keys


@compiled
def mixed(key: Any) -> Any:
    """Return a 64-bit word in which each bit depends on all bits of the key (SplitMix64)."""
    key = (key ^ (key >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    key = (key ^ (key >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return key ^ (key >> np.uint64(31))

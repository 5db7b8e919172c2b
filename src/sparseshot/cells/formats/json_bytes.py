"""The bytes of JSON, one token at a time, for compiled walks over it."""

from typing import Any

import numpy as np
from numba import njit

_TENS = 10.0 ** np.arange(23)  # those that float64 holds exactly


@njit(cache=True)
def read_number(data: Any, i: int) -> Any:  # noqa: PLR0912  the grammar of a number
    """Read a number; ``NaN``, ``Infinity`` (which QuPath writes) and other words are not a number.

    Up to 15 digits are read exactly, more to the last bit but one.

    Returns:
        Where it ends, which is ``i`` if there is none, and its value.
    """
    size, start = len(data), i
    sign = -1.0 if data[i] == ord("-") else 1.0
    i += data[i] == ord("-")
    mantissa, exponent, digits, fraction, first = 0, 0, 0, False, i
    while i < size:
        c = data[i]
        if ord("0") <= c <= ord("9"):
            if digits < 18:
                mantissa = mantissa * 10 + (int(c) - ord("0"))
                digits += mantissa > 0
                exponent -= fraction
            else:
                exponent += not fraction
        elif c == ord(".") and not fraction and i > first:
            fraction = True
        else:
            break
        i += 1
    if i == first:
        while i < size and ord("A") <= data[i] <= ord("z"):
            i += 1
        return (i if i > first else start), np.nan
    if i < size and (data[i] == ord("e") or data[i] == ord("E")):
        i += 1
        negative = i < size and data[i] == ord("-")
        if i < size and (data[i] == ord("-") or data[i] == ord("+")):
            i += 1
        power = 0
        while i < size and ord("0") <= data[i] <= ord("9"):
            power = min(power * 10 + (int(data[i]) - ord("0")), 9999)
            i += 1
        exponent += -power if negative else power
    if -23 < exponent < 0:
        return i, sign * mantissa / _TENS[-exponent]
    if exponent == 0 or mantissa == 0:
        return i, sign * mantissa
    return i, sign * mantissa * 10.0**exponent


@njit(cache=True)
def closing_quote(data: Any, i: int) -> int:
    """Give where the string that ``i`` stands in ends, or the end of the data."""
    while i < len(data) and data[i] != ord('"'):
        i += 2 if data[i] == ord("\\") else 1
    return min(i, len(data))


@njit(cache=True)
def is_space(c: int) -> Any:
    """Tell whether a byte is white space."""
    return c == 32 or c == 10 or c == 13 or c == 9  # noqa: PLR1714  a set is slow here


@njit(cache=True)
def is_digit(c: int) -> Any:
    """Tell whether a number may begin with a byte."""
    return ord("0") <= c <= ord("9") or c == ord("-")


@njit(cache=True)
def is_word(data: Any, start: int, stop: int, word: Any) -> bool:
    """Tell whether a span of the data is a word."""
    if stop - start != len(word):
        return False
    for k in range(len(word)):  # noqa: SIM110  compiled
        if data[start + k] != word[k]:
            return False
    return True


@njit(cache=True)
def write_number(text: Any, out: int, number: Any) -> int:
    """Write a whole number that is not negative; give where it ends."""
    digits = 1
    while 10**digits <= number:
        digits += 1
    for k in range(digits):
        text[out + digits - 1 - k] = ord("0") + number % 10
        number //= 10
    return out + digits

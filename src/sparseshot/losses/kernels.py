"""Exclusive cross-entropy and its gradient in one pass over memory on the CPU, compiled by numba.

The formula is that of :mod:`sparseshot.losses.plain`, written so that LLVM vectorises it: selects instead of
branches, no calls, exponential and logarithm as polynomials (numba has no vector library), one-dimensional
slices, blocks that fit the L1 cache. A division that may raise is a branch too and would make everything
several times slower, hence ``error_model="numpy"``.
"""

# ruff: noqa: PLR0917 - numba knows no keyword-only arguments

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar, cast

import numpy as np
from numba import njit

from sparseshot.compiled import compiled

F = TypeVar("F", bound=Callable[..., Any])

# Without "nnan" and "ninf": a NaN among the logits must give a NaN loss.
_RELAXED = {"contract", "reassoc", "nsz", "arcp"}

BLOCK = 1024

_f = np.float32
_ZERO, _HALF, _ONE, _TWO = _f(0), _f(0.5), _f(1), _f(2)
_LN2, _LOG2E = _f(0.6931471805599453), _f(1.4426950408889634)
_LN2_HIGH, _LN2_LOW = _f(0.693359375), _f(-2.12194440e-4)  # sum up to ln 2; k times the high part is exact
_UNDERFLOW = _f(-87)

# The role of a location; class y ≥ 1 has role y + 1. Floats, as the logits, so that all lanes have one width.
IGNORED, EXCLUDED, UNANNOTATED, BACKGROUND = _f(-2), _f(-1), _f(0), _f(1)


def _inlined(function: F) -> F:
    return cast(F, njit(inline="always", error_model="numpy", fastmath=_RELAXED)(function))


_compiled = partial(compiled, fastmath=_RELAXED)


@_inlined
def exp(x: Any) -> Any:
    """Return the exponential of x ≤ 0 as 2^k · e^r, |r| ≤ ln(2)/2; relative error below 1e-7, 0 under -87."""
    k = _f(np.int32(x * _LOG2E - _HALF))  # int cuts towards zero, so for a negative number this rounds
    r = x - k * _LN2_HIGH - k * _LN2_LOW
    y = _f(1 / 5040)
    y = y * r + _f(1 / 720)
    y = y * r + _f(1 / 120)
    y = y * r + _f(1 / 24)
    y = y * r + _f(1 / 6)
    y = y * r + _HALF
    y = y * r * r + r + _ONE
    power_of_two = np.int32((k + _f(127)) * _f(1 << 23)).view(np.float32)  # k as the bits of an exponent
    return _ZERO if x < _UNDERFLOW else y * power_of_two


@_inlined
def log1p(x: Any) -> Any:
    """Return log(1 + x) for 0 ≤ x ≤ 1 as 2·artanh(s), s = x / (2 + x) ≤ 1/3; relative error below 3e-7."""
    s = x / (_TWO + x)
    w = s * s
    y = _f(1 / 15)
    y = y * w + _f(1 / 13)
    y = y * w + _f(1 / 11)
    y = y * w + _f(1 / 9)
    y = y * w + _f(1 / 7)
    y = y * w + _f(1 / 5)
    y = y * w + _f(1 / 3)
    return _TWO * s * (_ONE + w * y)


@_inlined
def log(x: Any) -> Any:
    """Return the logarithm of x ≥ 1 from the bits of its exponent and its mantissa in [1, 2)."""
    bits = _f(x).view(np.int32)
    exponent = _f(np.int32(bits >> np.int32(23))) - _f(127)
    mantissa = np.int32((bits & np.int32(0x007FFFFF)) | np.int32(0x3F800000)).view(np.float32)
    logarithm = exponent * _LN2 + log1p(mantissa - _ONE)
    return x if x != x else logarithm  # noqa: PLR0124 - only NaN is not itself, and its bits look like a number


@_inlined
def _location(x: Any, role: Any, threshold: Any, alpha: Any, gamma: Any) -> Any:
    """Return the loss of a location with foreground logit ``x``, its derivative by ``x``, 1 if excluded."""
    positive = x >= _ZERO
    e = exp(-x if positive else x)
    larger = _ONE / (_ONE + e)
    smaller = e * larger
    p = larger if positive else smaller
    q = smaller if positive else larger
    softplus = log1p(e)
    log_p = (_ZERO if positive else x) - softplus
    log_q = (-x if positive else _ZERO) - softplus
    weight = alpha * exp(gamma * log_p)
    excluded = (role < UNANNOTATED) | (x >= threshold)
    loss_unannotated = _ZERO if excluded else -weight * log_q
    slope_unannotated = _ZERO if excluded else weight * (p - gamma * q * log_q)
    loss_annotated = -log_q if role == BACKGROUND else -log_p
    slope_annotated = p if role == BACKGROUND else -q
    unannotated = role <= UNANNOTATED
    loss = loss_unannotated if unannotated else loss_annotated
    slope = slope_unannotated if unannotated else slope_annotated
    return loss, slope, _ONE if (role == UNANNOTATED) & (x >= threshold) else _ZERO


@_compiled
def _fill_roles(
    role: Any, target: Any, annotated: Any, excluded: Any, classes: Any, ignore_index: Any
) -> Any:
    """Fill ``role``; count the locations that are not ignored, unannotated, and of no known class."""
    n_counted, n_unannotated, n_wrong = _ZERO, _ZERO, _ZERO
    for i in range(role.size):
        y = _f(target[i])
        # Conditions are multiplied as numbers: joined by "and" they would become branches.
        ignored = _ONE if y == ignore_index else _ZERO
        known = (_ONE if y >= _ZERO else _ZERO) * (_ONE if y <= classes else _ZERO)
        role[i] = IGNORED if y == ignore_index else BACKGROUND + y
        n_counted += _ONE - ignored
        n_wrong += _ONE - ignored - known
    if annotated.size:
        for i in range(role.size):
            uncertain = UNANNOTATED if role[i] > IGNORED else IGNORED
            role[i] = role[i] if annotated[i] else uncertain
    else:
        for i in range(role.size):
            role[i] = UNANNOTATED if role[i] == BACKGROUND else role[i]
    for i in range(role.size):
        n_unannotated += _ONE if role[i] == UNANNOTATED else _ZERO
    if excluded.size:
        for i in range(role.size):
            left_out = EXCLUDED if role[i] == UNANNOTATED else role[i]
            role[i] = left_out if excluded[i] else role[i]
    return n_counted, n_unannotated, n_wrong


@_compiled
def _fill_locations(x: Any, role: Any, threshold: Any, alpha: Any, gamma: Any, loss: Any, slope: Any) -> Any:
    n_excluded = _ZERO
    for i in range(role.size):
        loss[i], slope[i], excluded = _location(x[i], role[i], threshold, alpha, gamma)
        n_excluded += excluded
    return n_excluded


@_compiled
def _merge_classes(z: Any, shares: Any, total: Any, x: Any) -> None:
    """Write into ``total`` log Σ exp z over the foreground, into ``x`` that minus the background's logit.

    ``shares[c]`` becomes the probability of class c, given that it is foreground.
    """
    size = x.size
    _copy(z[1], total)
    for c in range(2, len(z)):
        row = z[c]
        for i in range(size):
            total[i] = row[i] if row[i] > total[i] else total[i]
    x[:] = _ZERO
    for c in range(1, len(z)):
        row, share = z[c], shares[c]
        for i in range(size):
            e = exp(row[i] - total[i])
            share[i] = e
            x[i] += e
    for c in range(1, len(z)):
        share = shares[c]
        for i in range(size):
            share[i] /= x[i]
    background = z[0]
    for i in range(size):
        merged = total[i] + log(x[i])
        total[i] = merged
        x[i] = merged - background[i]


@_compiled
def _spread_classes(z: Any, shares: Any, total: Any, role: Any, slope: Any, loss: Any) -> None:
    """Turn ``shares`` into the gradient by each logit; add the loss between classes."""
    background = shares[0]
    for i in range(role.size):
        background[i] = -slope[i]
    for c in range(1, len(z)):
        row, share, own = z[c], shares[c], BACKGROUND + _f(c)
        for i in range(role.size):
            chosen = role[i] == own
            between = share[i] - (_ONE if chosen else _ZERO)
            share[i] = slope[i] * share[i] + (between if role[i] > BACKGROUND else _ZERO)
            loss[i] += total[i] - row[i] if chosen else _ZERO


@_compiled
def _weigh(class_weights: Any, role: Any, weight: Any, rows: Any, loss: Any) -> Any:
    """Multiply ``loss`` and all rows by the weight of each location's class; return the sum of weights."""
    weight[:] = class_weights[0]
    for y in range(1, class_weights.size):
        own, w = BACKGROUND + _f(y), class_weights[y]
        for i in range(role.size):
            weight[i] = w if role[i] == own else weight[i]
    for c in range(len(rows)):
        row = rows[c]
        for i in range(role.size):
            row[i] *= weight[i]
    for i in range(role.size):
        loss[i] *= weight[i]
        weight[i] = _ZERO if role[i] == IGNORED else weight[i]
    return _sum(weight)


@_compiled
def _copy(source: Any, destination: Any) -> None:
    for i in range(destination.size):
        destination[i] = source[i]


@_compiled
def _sum(values: Any) -> Any:
    total = 0.0
    for i in range(values.size):
        total += values[i]
    return total


@_compiled
def exclusive_pass(
    z: Any,
    target: Any,
    annotated: Any,
    excluded: Any,
    class_weights: Any,
    threshold: Any,
    alpha: Any,
    gamma: Any,
    ignore_index: Any,
    losses: Any,
    gradient: Any,
) -> Any:
    """Compute a batch in one pass: fill ``gradient``, fill ``losses`` if given, and sum.

    An optional array that is not given is empty: None would be another type, for which numba would compile
    again.

    Args:
        z: float32 logits ``(N, 1, M)`` or ``(N, C + 1, M)``; any strides, fastest along M.
        target: integers ``(N · M,)``.
        annotated: booleans ``(N · M,)``; not given, ``target > 0``.
        excluded: optional booleans ``(N · M,)``: further locations to exclude.
        class_weights: optional float32 ``(C + 1,)``.
        threshold: foreground logit from which an unannotated location is excluded.
        alpha: weight of the unannotated part.
        gamma: focal exponent of the unannotated part.
        ignore_index: target of ignored locations.
        losses: optional float32 ``(N · M,)``, to be filled.
        gradient: float32, of the shape of ``z``, to be filled: derivative of the sum of the losses.

    Returns:
        Five floats: the sum of the losses, the sum of the weights of locations that are not ignored, and the
        numbers of unannotated ones, of those over the threshold, and of targets of no known class.
    """
    samples, logits, size = z.shape
    classes = _f(max(logits - 1, 1))
    rows, shares = np.empty((logits, BLOCK), np.float32), np.empty((logits, BLOCK), np.float32)
    lines = np.empty((6, BLOCK), np.float32)
    summed, weights, n_unannotated, n_excluded, n_wrong = 0.0, 0.0, 0.0, 0.0, 0.0
    for n in range(samples):
        for start in range(0, size, BLOCK):
            stop = min(start + BLOCK, size)
            width, first, last = stop - start, n * size + start, n * size + stop
            loss, role, x = lines[0, :width], lines[1, :width], lines[2, :width]
            slope, total, weight = lines[3, :width], lines[4, :width], lines[5, :width]
            counts = _fill_roles(
                role, target[first:last], annotated[first:last], excluded[first:last], classes, ignore_index
            )
            for c in range(logits):
                _copy(z[n, c, start:stop], rows[c, :width])
            if logits == 1:
                over = _fill_locations(rows[0, :width], role, threshold, alpha, gamma, loss, shares[0])
            else:
                _merge_classes(rows, shares, total, x)
                over = _fill_locations(x, role, threshold, alpha, gamma, loss, slope)
                _spread_classes(rows, shares, total, role, slope, loss)
            if class_weights.size:
                weights += _weigh(class_weights, role, weight, shares, loss)
            else:
                weights += counts[0]
            for c in range(logits):
                _copy(shares[c, :width], gradient[n, c, start:stop])
            if losses.size:
                _copy(loss, losses[first:last])
            summed += _sum(loss)
            n_unannotated += counts[1]
            n_wrong += counts[2]
            n_excluded += over
    return summed, weights, n_unannotated, n_excluded, n_wrong

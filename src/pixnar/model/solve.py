"""Rows that compose: phrase rows solved so that the rows of a docid add up to the encoder's vector of that docid.

With A the docid × token matrix and H the vectors of the docids, the rows W minimise ‖A W − H‖² + ridge · ‖W − W₀‖².
With word pieces, W = R + P U: every phrase has a row of its own, R, plus the rows U of its word pieces, and the ridge
is on R and U. The normal equations are solved by conjugate gradients, all columns at once, with a diagonal
preconditioner. A is only ever read as token lists, so memory follows the vocabulary, not the number of docids.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pixnar import _native
from pixnar.base.errors import FileFormatError
from pixnar.base.progress import Progress
from pixnar.base.storage import read_container, write_container
from pixnar.vocab.protocol import EncodedBatch

Floats = NDArray[np.float32]

_KIND, _VERSION = "solverst", 1
_AT_ONCE = 1 << 15  # docids whose vectors are read at a time
_SUMMED = 4096  # rows that are added up in 32 bits before the sum goes on in 64
_SAVE_SECONDS = 60.0


@dataclass(frozen=True, kw_only=True)
class SolveOptions:
    """How to solve. The residual falls fast: 20 to 30 rounds reach the default tolerance on real corpora."""

    ridge: float = 1.0
    rounds: int = 60  # at most
    tolerance: float = 2e-3  # a column stops when its residual is this share of the first one
    sample: int = 20_000_000  # docids that are used, at most: evenly spread over all of them
    threads: int = 0

    def __post_init__(self) -> None:
        if not self.ridge > 0:
            raise ValueError(f"ridge = {self.ridge}: give a number above 0")
        if self.sample < 1:
            raise ValueError(f"sample = {self.sample}: give a number of at least 1")


@dataclass(frozen=True)
class Solved:
    """Rows of the phrases [V, d] and of the word pieces [P, d], which has no rows where none were asked for."""

    rows: Floats
    pieces: Floats
    rounds: int
    residual: float  # as a share of the first


def solve_rows(
    tokens: EncodedBatch,
    vectors: NDArray[Any],
    size: int,
    options: SolveOptions | None = None,
    *,
    pieces: EncodedBatch | None = None,
    start: Floats | None = None,
    columns: slice = slice(None),
    state: Path | None = None,
    progress: Progress | None = None,
) -> Solved:
    """Solve the rows of `size` tokens for docids `tokens` with unit vectors [n, d].

    `pieces` lists the word pieces of every token. `start` is W₀, zero if not given; with pieces it must not be given.
    Columns are independent of each other: processes that share the work each solve some `columns`. With `state`, a
    file that is written every minute, a solve that was killed resumes there; it is removed at the end.
    """
    options = options or SolveOptions()
    _check(tokens, vectors, size, pieces, start)
    problem = _NormalEquations(_sampled(tokens, options.sample), size, pieces, options)
    b = problem.right_side(vectors, start, columns, _step(len(tokens.offsets) - 1, options.sample), progress)
    first = np.maximum(_dots(b, b), 1e-30)
    now = _State(np.zeros_like(b), b, np.zeros_like(b), np.ones_like(first), 0)
    kept = _load(state, b.shape, first, options) if state else None
    x, r, d, rz, done = kept or now
    saved = time.monotonic()
    squares = _dots(r, r)
    residual = float(np.sqrt((squares / first).mean()))
    while done < options.rounds and (left := squares > options.tolerance**2 * first).any():
        z = _dots(r, r, problem.inverse)
        _advance(d, z / np.maximum(rz, 1e-30) if done else None, r, problem.inverse)
        rz = z
        product = problem.product(d)
        step = np.where(left, rz / np.maximum(_dots(d, product), 1e-30), 0.0).astype(np.float32)
        _add_scaled(x, d, step)
        _add_scaled(r, product, -step)
        done += 1
        squares = _dots(r, r)
        residual = float(np.sqrt((squares / first).mean()))
        if progress:
            progress(f"solving phrase rows: residual {residual:.4f}", done, options.rounds)
        if state and time.monotonic() - saved > _SAVE_SECONDS:
            _save(state, _State(x, r, d, rz, done), first, options)
            saved = time.monotonic()
    if state:
        state.unlink(missing_ok=True)
    rows = x[:size] if start is None else x[:size] + start[:, columns]
    return Solved(rows, x[size:], done, residual)


class _State(NamedTuple):
    """Where conjugate gradients are: solution, residual and direction, r·z of the round before, rounds done."""

    x: Floats
    r: Floats
    d: Floats
    rz: NDArray[np.float64]
    done: int


def _check(
    tokens: EncodedBatch, vectors: NDArray[Any], size: int, pieces: EncodedBatch | None, start: Floats | None
) -> None:
    docids = len(tokens.offsets) - 1
    if vectors.ndim != 2 or len(vectors) != docids:
        raise ValueError(f"vectors of shape {vectors.shape} for {docids} docids")
    if start is not None and pieces is not None:
        raise ValueError("rows with word pieces start at zero: give start or pieces, not both")
    if start is not None and start.shape != (size, vectors.shape[1]):
        raise ValueError(f"start of shape {start.shape}, not {(size, vectors.shape[1])}")
    if pieces is not None and len(pieces.offsets) - 1 != size:
        raise ValueError(f"the word pieces of {len(pieces.offsets) - 1} tokens, not of {size}")


class _NormalEquations:
    """The matrix AᵀA + ridge · I, with pieces [A, AP]ᵀ[A, AP] + ridge · I, and its diagonal."""

    def __init__(self, tokens: EncodedBatch, size: int, pieces: EncodedBatch | None, options: SolveOptions) -> None:
        self._ids, self._offsets = np.ascontiguousarray(tokens.ids, np.uint32), tokens.offsets
        self._size, self._pieces, self._threads, self._ridge = size, pieces, options.threads, np.float32(options.ridge)
        counts = np.bincount(self._ids, minlength=size).astype(np.float32)
        self.total = size
        if pieces is not None:
            n = int(pieces.ids.max(initial=0)) + 1
            self.total += n
            of_pieces = np.bincount(pieces.ids, np.repeat(counts, pieces.lengths), n).astype(np.float32)
            counts = np.concatenate([counts, of_pieces])
        self.inverse = (1 / (counts + self._ridge)).astype(np.float32)

    def right_side(
        self, vectors: NDArray[Any], start: Floats | None, columns: slice, step: int, progress: Progress | None
    ) -> Floats:
        """Aᵀ(H − A W₀), and below it the same for the pieces; reads the vectors once, some at a time."""
        n, width = len(self._offsets) - 1, len(range(*columns.indices(vectors.shape[1])))
        out = np.zeros((self.total, width), np.float32)
        for begin in range(0, n, _AT_ONCE):
            end = min(n, begin + _AT_ONCE)
            some = slice(begin * step, (end - 1) * step + 1, step)
            values = np.array(vectors[some, columns], np.float32, order="C")  # a copy: it is changed
            low, high = self._offsets[begin], self._offsets[end]
            ids, offsets = self._ids[low:high], self._offsets[begin : end + 1] - low
            if start is not None:
                sums = np.zeros_like(values)
                _native.bag_sums(ids, offsets, np.ascontiguousarray(start[:, columns]), sums, self._threads)
                values = values - sums  # not in place: they may be the caller's own
            _native.bag_scatter(ids, offsets, values, out[: self._size], self._threads)
            if progress:
                progress("solving phrase rows: reading vectors", end, n)
        self._to_pieces(out)
        return out

    def product(self, d: Floats) -> Floats:
        """The matrix times d [V + P, columns]."""
        whole = np.ascontiguousarray(d[: self._size])
        if self._pieces is not None:
            sums = np.zeros_like(whole)
            _native.bag_sums(self._pieces.ids, self._pieces.offsets, d[self._size :], sums, self._threads)
            whole = whole + sums
        out = np.zeros_like(d)
        _native.bag_gram(self._ids, self._offsets, whole, out[: self._size], self._threads)
        self._to_pieces(out)
        _add_scaled(out, d, np.full(d.shape[1], self._ridge, np.float32))
        return out

    def _to_pieces(self, out: Floats) -> None:
        """What belongs to the phrases is added to their pieces as well."""
        if self._pieces is not None:
            below = out[self._size :]
            _native.bag_scatter(self._pieces.ids, self._pieces.offsets, out[: self._size], below, self._threads)


def _step(n: int, most: int) -> int:
    """Of n docids every so many-th is used."""
    return max(1, -(-n // most))


def _sampled(tokens: EncodedBatch, most: int) -> EncodedBatch:
    step = _step(len(tokens.offsets) - 1, most)
    if step == 1:
        return EncodedBatch(tokens.ids, tokens.offsets)
    starts, lengths = tokens.offsets[:-1][::step], tokens.lengths[::step]
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    places = np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], lengths)
    return EncodedBatch(tokens.ids[places], offsets)


def _pieces_of(rows: int) -> Iterator[slice]:
    for begin in range(0, rows, _SUMMED):
        yield slice(begin, min(rows, begin + _SUMMED))


def _dots(a: Floats, b: Floats, weights: Floats | None = None) -> NDArray[np.float64]:
    """The products of the columns of a and b, rows weighted if asked for; in the same order every time."""
    if a.shape[1] == 1:  # of a single column numpy would change the order
        return _dots(np.repeat(a, 2, 1), np.repeat(b, 2, 1), weights)[:1]
    total = np.zeros(a.shape[1])
    for some in _pieces_of(len(a)):
        right = b[some] if weights is None else b[some] * weights[some, None]
        total += np.einsum("ij,ij->j", a[some], right)
    return total


def _advance(d: Floats, beta: NDArray[np.float64] | None, r: Floats, inverse: Floats) -> None:
    """The next direction, in place: d = beta · d + inverse · r."""
    factor = np.zeros(d.shape[1], np.float32) if beta is None else beta.astype(np.float32)
    for some in _pieces_of(len(d)):
        d[some] *= factor
        d[some] += inverse[some, None] * r[some]


def _add_scaled(x: Floats, d: Floats, factor: Floats) -> None:
    for some in _pieces_of(len(x)):
        x[some] += d[some] * factor


def _save(path: Path, state: _State, first: NDArray[np.float64], options: SolveOptions) -> None:
    meta = {"done": state.done, "shape": list(state.x.shape), "ridge": options.ridge}
    arrays: dict[str, NDArray[Any]] = {
        "x": state.x.ravel(),
        "r": state.r.ravel(),
        "d": state.d.ravel(),
        "rz": state.rz,
        "first": first,
    }
    write_container(path, _KIND, _VERSION, meta, arrays)


def _load(path: Path, shape: tuple[int, ...], first: NDArray[np.float64], options: SolveOptions) -> _State | None:
    """A state of the same problem: its right side has the same norms to the bit."""
    try:
        found = read_container(path, _KIND, _VERSION)
        same = found.meta["shape"] == list(shape) and found.meta["ridge"] == options.ridge
        if not same or not np.array_equal(found.arrays["first"], first):
            return None
        x, r, d = (np.array(found.arrays[name]).reshape(shape) for name in "xrd")
        return _State(x, r, d, np.array(found.arrays["rz"]), int(found.meta["done"]))
    except (FileFormatError, KeyError, ValueError):
        return None  # none yet, or damaged: solved from the beginning

"""The best tokens of every slot: by scoring all, by a preview, by a list per slot, or by the learned shortlist."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pixnar.runtime import HeadRows
from pixnar.runtime.formats import stride_of
from pixnar.runtime.shortlist import Shortlist

Ids = NDArray[np.uint32]
Floats = NDArray[np.float32]
Top = list[tuple[NDArray[np.uint32], Floats]]  # of each slot: tokens, best first, and their logits
_CHUNK = 65_536


class Softmax(Protocol):
    """A way to find the n best tokens of every slot. The last row, the end of a docid, is one of the tokens."""

    @property
    def name(self) -> str:
        """For tables."""
        ...

    def top(self, x: Floats, n: int, threads: int = 1) -> Top:
        """The n best tokens of the slots x_1 … x_s of queries with x [B, s + 1, d]; slots follow one another.

        Logits are those of the whole rows.
        """
        ...

    def nbytes(self) -> int:
        """What it keeps in memory beside the rows themselves."""
        ...

    def scored(self, x: Floats) -> float:
        """How many whole rows a slot is compared with, on average."""
        ...


@dataclass(frozen=True)
class Full:
    """Every row."""

    rows: HeadRows
    name: str = "full softmax"

    def top(self, x: Floats, n: int, threads: int = 1) -> Top:
        """See `Softmax`."""
        return self.rows.top(slots_of(x), n, threads=threads)

    def nbytes(self) -> int:
        """See `Softmax`."""
        return 0

    def scored(self, x: Floats) -> float:
        """See `Softmax`."""
        return float(self.rows.count)


@dataclass(frozen=True)
class Preview:
    """A cheap copy of all rows proposes `keep` tokens a slot; their whole rows decide."""

    name: str
    rows: HeadRows
    cheap: HeadRows
    turn: Floats | None  # [d, w]: brings x to the cheap rows' dimensions; None: they have the same
    keep: int

    def top(self, x: Floats, n: int, threads: int = 1) -> Top:
        """See `Softmax`."""
        slots = slots_of(x)
        turned = slots if self.turn is None else slots @ self.turn
        found = self.cheap.top(turned, max(n, self.keep), threads=threads)
        return self.rows.top_each(slots, n, [ids for ids, _ in found], threads=threads)

    def nbytes(self) -> int:
        """See `Softmax`."""
        return self.cheap.nbytes + (0 if self.turn is None else self.turn.nbytes)

    def scored(self, x: Floats) -> float:
        """See `Softmax`."""
        return float(min(self.keep, self.rows.count))


@dataclass(frozen=True)
class LearnedShortlist:
    """The paper's: the union of the lists of the k vectors c_i nearest to x_0, scored at every slot."""

    rows: HeadRows
    shortlist: Shortlist
    name: str = "learned shortlist"

    def tokens(self, x0: Floats) -> NDArray[np.uint32]:
        """The tokens that are scored, the end among them."""
        return self.shortlist.tokens(x0, np.array([self.rows.count - 1], np.uint32), self.rows.count)

    def top(self, x: Floats, n: int, threads: int = 1) -> Top:
        """See `Softmax`."""

        def one(vectors: Floats, share: int) -> Top:
            return self.rows.top(vectors[1:], n, ids=self.tokens(vectors[0]), threads=share)

        return each_query(one, x, threads)

    def nbytes(self) -> int:
        """See `Softmax`."""
        return self.shortlist.c.nbytes + self.shortlist.lists.nbytes

    def scored(self, x: Floats) -> float:
        """See `Softmax`."""
        return float(np.mean([len(self.tokens(one[0])) for one in x]))


def slots_of(x: Floats) -> Floats:
    """x_1 … x_s of all queries, one below the other: [B · s, d]."""
    slots: Floats = np.ascontiguousarray(x[:, 1:]).reshape(-1, x.shape[-1])
    return slots


def each_query(one: Callable[[Floats, int], Top], x: Floats, threads: int) -> Top:
    """Queries one by one: many go to the threads, a single one may use them all."""
    if len(x) == 1:
        return one(x[0], threads)
    with ThreadPoolExecutor(max(1, threads)) as pool:
        return list(chain.from_iterable(pool.map(lambda vectors: one(vectors, 1), x)))


def main_directions(rows: HeadRows) -> Floats:
    """The eigenvectors of the rows' Gram matrix, the main one first, as columns: U Σ Vᵀ without holding U."""
    gram = np.zeros((rows.dim, rows.dim))
    for begin in range(0, rows.count, _CHUNK):
        piece = rows.decoded(slice(begin, begin + _CHUNK))
        gram += piece.T @ piece
    return np.ascontiguousarray(np.linalg.eigh(gram)[1][:, ::-1], dtype=np.float32)


def low_rank_preview(rows: HeadRows, width: int, keep: int, name: str, directions: Floats | None = None) -> Preview:
    """A preview by the `width` main directions of the rows, or as many more as fit into the same bytes.

    With an eighth of the width this is SVD-softmax; HiRE's low-rank form keeps more directions and fewer tokens.
    """
    width = min(rows.dim, stride_of("int8", width))
    turn = np.ascontiguousarray((main_directions(rows) if directions is None else directions)[:, :width])
    return Preview(name, rows, HeadRows.build(_Dequantised(rows, turn), rows.bias, format="int8"), turn, keep)


def int4_preview(rows: HeadRows, keep: int, name: str = "HiRE, 4 bits") -> Preview:
    """A preview by the same rows in 4 bits."""
    return Preview(name, rows, HeadRows.build(_Dequantised(rows), rows.bias, format="int4"), None, keep)


class _Dequantised:
    """The rows in 32 bits, turned or as they are, decoded as they are sliced."""

    def __init__(self, rows: HeadRows, turn: Floats | None = None) -> None:
        self._rows, self._turn = rows, turn
        self.shape = (rows.count, rows.dim if turn is None else turn.shape[1])

    def __getitem__(self, piece: slice) -> Floats:
        decoded = self._rows.decoded(piece)
        return decoded if self._turn is None else decoded @ self._turn


_AT_ONCE = 32  # states that are scored in one pass over the rows


@dataclass(frozen=True)
class PerSlotLists:
    """Every slot takes the list of its nearest centre: tokens ``ids[offsets[i]:offsets[i + 1]]`` of centre i."""

    name: str
    rows: HeadRows
    centres: HeadRows  # as `nearest_of` makes them
    ids: Ids
    offsets: NDArray[np.int64]

    def top(self, x: Floats, n: int, threads: int = 1) -> Top:
        """See `Softmax`."""
        slots = slots_of(x)
        chosen = [int(ids[0]) for ids, _ in self.centres.top(slots, 1, threads=threads)]
        lists = [self.ids[self.offsets[i] : self.offsets[i + 1]] for i in chosen]
        return self.rows.top_each(slots, n, lists, threads=threads)

    def nbytes(self) -> int:
        """See `Softmax`."""
        return self.centres.nbytes + self.ids.nbytes + self.offsets.nbytes

    def scored(self, x: Floats) -> float:
        """See `Softmax`."""
        chosen = [int(ids[0]) for ids, _ in self.centres.top(slots_of(x), 1)]
        return float(np.mean([self.offsets[i + 1] - self.offsets[i] for i in chosen]))


def nearest_of(centres: Floats) -> HeadRows:
    """Rows whose best token is the nearest centre: x·c − |c|²/2 is largest where |x − c| is smallest."""
    return HeadRows.build(centres, -0.5 * np.square(centres).sum(1), format="float32")


def centroid_lists(rows: HeadRows, centres: Floats, r: int, name: str = "centroid clustering") -> PerSlotLists:
    """The r best tokens of every centre itself."""
    lists = []
    for begin in range(0, len(centres), _AT_ONCE):
        lists += [ids for ids, _ in rows.top(centres[begin : begin + _AT_ONCE], r, threads=2)]
    offsets = np.arange(len(centres) + 1, dtype=np.int64) * min(r, rows.count)
    return PerSlotLists(name, rows, nearest_of(centres), np.concatenate(lists), offsets)


def active_lists(
    rows: HeadRows, centres: Floats, states: Floats, each: int, name: str = "fast vocabulary projection"
) -> PerSlotLists:
    """The tokens that are among the `each` best of some hidden state of the cluster, and of the centre itself."""
    near = nearest_of(centres)
    everything = np.concatenate([centres, states])
    found: list[list[Ids]] = [[] for _ in centres]
    for begin in range(0, len(everything), _AT_ONCE):
        some = everything[begin : begin + _AT_ONCE]
        owners, best = near.top(some, 1), rows.top(some, each, threads=2)
        for (owner, _), (ids, _) in zip(owners, best, strict=True):
            found[int(owner[0])].append(ids)
    end = np.array([rows.count - 1], np.uint32)
    lists = [np.unique(np.concatenate([*some, end])) for some in found]
    offsets = np.concatenate([[0], np.cumsum([len(one) for one in lists])]).astype(np.int64)
    return PerSlotLists(name, rows, near, np.concatenate(lists), offsets)

"""One list of tokens per slot: that of the cluster of hidden states which the slot's vector falls into."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pixnar.research.softmax.methods import Top, slots_of
from pixnar.runtime import HeadRows

Floats = NDArray[np.float32]
Ids = NDArray[np.uint32]
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

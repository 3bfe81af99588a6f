"""A head of any size that was never trained but looks as if: groups of related phrases, a falling spectrum, Zipf's law.

Rows lie around the centres of their groups, the variance of later dimensions falls, and the bias is a Zipf prior. A
query wants a docid: x_0 lies near the docid's tokens together, every slot near one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pixnar.research.softmax import PerSlotLists, nearest_of
from pixnar.runtime import HeadRows
from pixnar.runtime.shortlist import Shortlist

Floats = NDArray[np.float32]

_SCALE = 20.0  # length of the vectors of a query; rows have length one
_SPREAD = 0.8  # of rows around the centre of their group
_NOISE = 0.35  # of a slot around the row it wants
_NEAR = 4  # a list is chosen among so many times its length of tokens of the nearest groups
_STATES = 16  # hidden states per cluster whose best tokens are its active ones


@dataclass(frozen=True)
class SyntheticHead:
    """Rows, the centres of their groups, and which group each belongs to."""

    rows: HeadRows
    centres: Floats
    group: NDArray[np.int64]
    spectrum: Floats
    seed: int

    @classmethod
    def make(cls, tokens: int, width: int, groups: int, seed: int = 0) -> SyntheticHead:
        """So many tokens and one for the end of a docid."""
        generator = np.random.default_rng(seed)
        spectrum = (1.0 / np.sqrt(1.0 + np.arange(width) / 8.0)).astype(np.float32)
        centres = _unit(generator.standard_normal((groups, width), np.float32) * spectrum)
        group = generator.integers(0, groups, tokens + 1)
        prior = 1.0 / (2.7 + generator.permutation(tokens + 1))
        bias = np.log(prior / prior.sum()).astype(np.float32)
        rows = _Rows(centres, group, spectrum, seed)
        return cls(HeadRows.build(rows, bias, format="int8"), centres, group, spectrum, seed)

    def queries(self, count: int, slots: int, seed: int) -> Floats:
        """Vectors x [count, slots + 1, d] of queries that each want a docid of `slots` tokens of two related groups."""
        generator = np.random.default_rng((self.seed, seed, 1))
        members = _by_group(self.group, len(self.centres))
        x = np.empty((count, slots + 1, self.rows.dim), np.float32)
        for i in range(count):
            first = int(generator.integers(len(self.centres)))
            near = np.argsort(-(self.centres @ self.centres[first]))[:2]
            pool = np.concatenate([members[g] for g in near])
            wanted = generator.choice(pool, slots).astype(np.uint32)
            target = self.rows.decoded(wanted)
            x[i, 1:] = target + _NOISE * self._noise(generator, slots)
            x[i, 0] = target.mean(0) + _NOISE * self._noise(generator, 1)[0]
        return _SCALE * _unit(x)

    def shortlist(self, r: int, k: int, progress: Callable[[int], None] | None = None) -> Shortlist:
        """Lists of the r best tokens of every centre, and k of them for a query."""
        c = _SCALE * self.centres
        lists = np.empty((len(c), min(r, self.rows.count - 1)), np.uint32)
        for i, pool in enumerate(self._pools(lists.shape[1])):
            lists[i] = self.rows.top(c[i : i + 1], lists.shape[1], ids=pool)[0][0]
            if progress:
                progress(i)
        return Shortlist(c, lists, k)

    def active(self, each: int, progress: Callable[[int], None] | None = None) -> PerSlotLists:
        """The tokens that are among the `each` best of some hidden state near a centre."""
        generator = np.random.default_rng((self.seed, 2))
        end = np.array([self.rows.count - 1], np.uint32)
        lists = []
        for i, pool in enumerate(self._pools(each)):
            rows = self.rows.decoded(generator.choice(pool[: max(1, len(pool) // _NEAR)], _STATES))
            states = _SCALE * _unit(rows + _NOISE * self._noise(generator, _STATES))
            best = [ids for ids, _ in self.rows.top(states, each, ids=pool)]
            lists.append(np.unique(np.concatenate([*best, end])))
            if progress:
                progress(i)
        offsets = np.concatenate([[0], np.cumsum([len(one) for one in lists])]).astype(np.int64)
        centres = nearest_of(_SCALE * self.centres)
        return PerSlotLists(
            "fast vocabulary projection, true groups", self.rows, centres, np.concatenate(lists), offsets
        )

    def _pools(self, r: int) -> Iterator[NDArray[np.uint32]]:
        """Tokens of the groups nearest to every centre, at least `_NEAR` times as many as a list holds."""
        members = _by_group(self.group[:-1], len(self.centres))
        sizes = np.array([len(one) for one in members])
        for i in range(len(self.centres)):
            order = np.argsort(-(self.centres @ self.centres[i]), kind="stable")
            enough = int(np.searchsorted(np.cumsum(sizes[order]), _NEAR * r)) + 1
            yield np.concatenate([members[g] for g in order[:enough]]).astype(np.uint32)

    def _noise(self, generator: np.random.Generator, count: int) -> Floats:
        return _unit(generator.standard_normal((count, self.rows.dim), np.float32) * self.spectrum)


class _Rows:
    """The rows in 32 bits, drawn as they are sliced: no size has to fit in memory."""

    def __init__(self, centres: Floats, group: NDArray[np.int64], spectrum: Floats, seed: int) -> None:
        self._centres, self._group, self._spectrum, self._seed = centres, group, spectrum, seed
        self.shape = (len(group), centres.shape[1])

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, piece: slice) -> Floats:
        begin, end, _ = piece.indices(len(self))
        generator = np.random.default_rng((self._seed, 3, begin))
        noise = _unit(generator.standard_normal((end - begin, self.shape[1]), np.float32) * self._spectrum)
        return _unit(self._centres[self._group[begin:end]] + _SPREAD * noise)


def _by_group(group: NDArray[np.int64], groups: int) -> list[NDArray[np.int64]]:
    order = np.argsort(group, kind="stable")
    return np.split(order, np.searchsorted(group[order], np.arange(1, groups)))


def _unit(vectors: Floats) -> Floats:
    unit: Floats = vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)
    return unit

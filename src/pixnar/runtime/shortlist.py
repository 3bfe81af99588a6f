"""The token lists W_i of the vectors c_i, and the shortlist of a query: the union of the lists of its k best c_i."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pixnar.base.errors import FileFormatError
from pixnar.base.storage import read_container, write_container
from pixnar.runtime import HeadRows, union_of_lists

Floats = NDArray[np.float32]
Ids = NDArray[np.uint32]

KIND = "shrtlist"
VERSION = 2
PAPER = (4096, 20_000, 5)  # m, r, k of the paper
SHARE = 0.03  # of the vocabulary in each list, below the paper's r
SHORT_K = 8  # lists a query takes where they are shorter
LEAST_MEMBERS = 8  # examples for each vector c_i, at least; fewer cannot teach it a list


def defaults(vocabulary: int, examples: int) -> tuple[int, int, int]:
    """m, r and k for a vocabulary and a number of training examples.

    r is 3 % of V, at most the paper's 20,000, with which k is the paper's 5. Of shorter lists a query takes 8. They
    overlap: the shortlist is less than k · r.
    """
    most, length, k = PAPER
    r = max(1, min(length, round(SHARE * vocabulary)))
    m = min(most, max(1, examples // LEAST_MEMBERS))
    return m, r, min(k if r == length else SHORT_K, m)


def token_lists(
    c: ArrayLike, rows: Any, bias: Any, r: int, *, chunk: int = 65_536, block: int = 256, first: int = 0
) -> Ids:
    """W_i, the r tokens with the largest c_i·w_v + b_v, best first, for every c_i: [m, r].

    `rows` and `bias` are the head's: the last one is the end of a docid, which is always scored and in no list. Equal
    scores go by token id. Holds block × chunk scores at once, never m × V. `first` is the id of the first row.
    """
    vectors = np.asarray(c, dtype=np.float32)
    size = len(rows) - 1
    if vectors.ndim != 2 or vectors.shape[1] != rows.shape[1] or size < 1 or r < 1 or chunk < 1 or block < 1:
        raise ValueError(f"cannot list {r} tokens for vectors {vectors.shape} and rows {rows.shape}")
    lists = np.empty((len(vectors), min(r, size)), dtype=np.uint32)
    for start in range(0, len(vectors), block):
        some = vectors[start : start + block]
        best = [_Best(lists.shape[1]) for _ in some]
        for begin, scores in _scores(some, rows, bias, size, chunk):
            for one, line in zip(best, scores, strict=True):
                one.add(begin + first, line)
        lists[start : start + block] = [one.ids for one in best]
    return lists


def _scores(vectors: Floats, rows: Any, bias: Any, size: int, chunk: int) -> Iterator[tuple[int, Floats]]:
    """The scores of each piece of the vocabulary, and where it begins."""
    for begin in range(0, size, chunk):
        piece = slice(begin, min(begin + chunk, size))
        scores = vectors @ np.asarray(rows[piece], dtype=np.float32).T
        if bias is not None:
            scores += np.asarray(bias[piece], dtype=np.float32)
        yield begin, scores


class _Best:
    """The best tokens of one vector so far; pieces come in order of their ids."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._scores = np.empty(0, dtype=np.float32)
        self.ids = np.empty(0, dtype=np.uint32)

    def add(self, begin: int, scores: Floats) -> None:
        full = len(self.ids) == self._size
        better = np.flatnonzero(scores > self._scores[-1]) if full else np.arange(len(scores))
        if not better.size:
            return
        ids = np.concatenate([self.ids, (better + begin).astype(np.uint32)])
        merged = np.concatenate([self._scores, scores[better]])
        order = best_of(merged, ids, self._size)
        self.ids, self._scores = ids[order], merged[order]


def best_of(scores: Floats, ids: Ids, size: int) -> NDArray[np.intp]:
    """The places of the `size` largest scores, best first; equal ones by id."""
    places = np.arange(len(scores))
    if size < len(scores):
        worst = np.partition(scores, len(scores) - size)[len(scores) - size]
        places = np.flatnonzero(scores >= worst)
    return places[np.lexsort((ids[places], -scores[places]))[:size]]


@dataclass(frozen=True)
class Shortlist:
    """The vectors c [m, d], their lists (best token first), and how many lists a query takes.

    Lists of one length are an array [m, r]. Lists of any length lie in one array, list i at offsets[i] to
    offsets[i + 1].
    """

    c: Floats
    lists: Ids
    k: int
    offsets: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        lists = len(self.lists) if self.offsets is None else len(self.offsets) - 1
        flat = 2 if self.offsets is None else 1
        if self.c.ndim != 2 or self.lists.ndim != flat or len(self.c) != lists or not 1 <= self.k <= len(self.c):
            raise ValueError(f"no shortlist: c {self.c.shape}, lists {self.lists.shape}, k = {self.k}")

    def list_of(self, i: int) -> Ids:
        """The tokens of one list, best first."""
        return self.lists[i] if self.offsets is None else self.lists[self.offsets[i] : self.offsets[i + 1]]

    @property
    def mean_length(self) -> float:
        """Tokens of a list, on average."""
        return self.lists.size / len(self.c)

    @property
    def longest(self) -> int:
        """Tokens of the longest list."""
        return self.lists.shape[1] if self.offsets is None else int(np.diff(self.offsets).max(initial=0))

    def nearest(self, x0: ArrayLike) -> NDArray[np.int64]:
        """Which k vectors have the largest inner product with x_0, best first; equal ones by their number."""
        found, _ = self._compared.top(np.asarray(x0, dtype=np.float32)[None], self.k)[0]
        return found.astype(np.int64)

    @cached_property
    def _compared(self) -> HeadRows:
        """The vectors where the native core compares them: on one thread, which is quicker than many for so few."""
        return HeadRows.build(self.c, format="float32" if self.offsets is None else "int8")

    def tokens(self, x0: ArrayLike, extra: ArrayLike | None = None, vocabulary: int | None = None) -> Ids:
        """The tokens to score for a query: the union of its k lists and of `extra`, sorted, each once.

        A token that is not in a vocabulary of a given size is an error.
        """
        more = np.zeros(0, np.uint32) if extra is None else np.asarray(extra, np.uint32)
        chosen = self.nearest(x0)
        if vocabulary is None:
            highest = max(int(self.list_of(int(i)).max(initial=0)) for i in chosen)
            vocabulary = 1 + max(highest, int(more.max(initial=0)))
        return union_of_lists(self.lists, chosen, more, vocabulary, self.offsets)

    def take(self, k: int) -> Shortlist:
        """The same lists, of which a query takes another number."""
        return replace(self, k=k)

    def cut(self, r: int, k: int) -> Shortlist:
        """The same vectors with only the first r tokens of each list, and another k."""
        if self.offsets is None:
            return Shortlist(self.c, self.lists[:, :r], k)
        lengths = np.minimum(np.diff(self.offsets), r)
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        places = np.arange(offsets[-1]) + np.repeat(self.offsets[:-1] - offsets[:-1], lengths)
        return Shortlist(self.c, self.lists[places], k, offsets)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write to one file."""
        meta = {"m": len(self.c), "d": self.c.shape[1], "k": self.k}
        arrays: dict[str, NDArray[Any]] = {
            "c": self.c.astype(np.float32).ravel(),
            "lists": self.lists.astype(np.uint32).ravel(),
        }
        if self.offsets is None:
            meta["r"] = self.lists.shape[1]
        else:
            arrays["offsets"] = self.offsets.astype(np.int64)
        write_container(path, KIND, VERSION, meta, arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, verify: bool = True) -> Shortlist:
        """Map a file that `save` wrote; `verify` checks every byte first."""
        found = read_container(path, KIND, VERSION, verify=verify)
        try:
            m, k = int(found.meta["m"]), int(found.meta["k"])
            c, lists = found.arrays["c"].reshape(m, found.meta["d"]), found.arrays["lists"]
            if "r" in found.meta:
                return cls(c, lists.reshape(m, found.meta["r"]), k)
            offsets = found.arrays["offsets"]
            if offsets[0] != 0 or offsets[-1] != len(lists) or (np.diff(offsets) < 0).any():
                raise ValueError("offsets that do not divide the lists")
            return cls(c, lists, k, offsets)
        except (KeyError, IndexError, ValueError, TypeError) as error:
            why = "its parts do not fit together"
            raise FileFormatError(f"{Path(path)} is no usable shortlist ({why}): build the shortlist again") from error

"""Ids of documents and queries: a set that keeps 8 bytes for each, whatever they look like, and which are text."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import xxhash
from numpy.typing import NDArray

_hash = xxhash.xxh3_64_intdigest
_HALF = re.compile(r"[\ud800-\udfff]")


def is_text(text: str) -> bool:
    r"""Whether there is no half of a surrogate pair in it, which JSON can spell and UTF-8 cannot.

    >>> is_text("café"), is_text("\ud800")
    (True, False)
    """
    return text.isascii() or not _HALF.search(text)


class IdSet:
    """Which ids have been seen, as sorted 64-bit hashes; asked and told in batches.

    Two of n ids share a hash with probability about n² / 2⁶⁵: 1 in 370,000 for ten million ids.

    >>> seen = IdSet()
    >>> seen.add(["a", "b", "a"]).tolist()
    [True, True, False]
    >>> seen.contains(["b", "c"]).tolist()
    [True, False]
    """

    def __init__(self) -> None:
        self._runs: list[NDArray[np.uint64]] = []  # sorted, each more than twice as long as the next

    def __len__(self) -> int:
        return sum(run.size for run in self._runs)

    def add(self, ids: Sequence[str]) -> NDArray[np.bool_]:
        """Add ids; True where an id is new, False from its second time on."""
        hashes = _hashes(ids)
        order = np.argsort(hashes, kind="stable")  # stable: of equal ids in one batch the first counts as new
        ordered = hashes[order]
        again = np.zeros(hashes.size, np.bool_)
        again[order[1:]] = ordered[1:] == ordered[:-1]
        new: NDArray[np.bool_] = ~(again | self._found(hashes))
        self._runs.append(ordered[new[order]])
        while len(self._runs) > 1 and self._runs[-2].size <= 2 * self._runs[-1].size:
            self._merge_last()
        return new

    def update(self, other: IdSet) -> None:
        """Add all ids of another set."""
        self._runs.extend(other._runs)

    def contains(self, ids: Sequence[str]) -> NDArray[np.bool_]:
        """True where an id has been added."""
        while len(self._runs) > 1:
            self._merge_last()
        return self._found(_hashes(ids))

    def _found(self, hashes: NDArray[np.uint64]) -> NDArray[np.bool_]:
        found = np.zeros(hashes.size, np.bool_)
        for run in self._runs:
            if run.size:
                found |= run[np.minimum(np.searchsorted(run, hashes), run.size - 1)] == hashes
        return found

    def _merge_last(self) -> None:
        merged = np.concatenate((self._runs[-2], self._runs[-1]))
        merged.sort(kind="stable")  # merges two sorted runs in linear time
        self._runs[-2:] = [merged]


def _hashes(ids: Sequence[str]) -> NDArray[np.uint64]:
    try:
        return np.fromiter(map(_hash, map(str.encode, ids)), np.uint64, len(ids))
    except UnicodeEncodeError:  # half a surrogate pair, which JSON can spell
        encoded = (text.encode("utf-8", "surrogatepass") for text in ids)
        return np.fromiter(map(_hash, encoded), np.uint64, len(ids))

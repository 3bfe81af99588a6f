"""Training pairs: the (input, docid) pairs of an epoch and their order, a function of seed and step alone."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pixnar.base.errors import PixnarError

Ints = NDArray[np.int64]
_EPOCH, _SIBLINGS = 0, 1  # one stream of random numbers for each purpose


class Epoch(NamedTuple):
    """Pairs in the order they are trained on: an input, the docid it should give, the document both belong to."""

    inputs: Ints
    targets: Ints
    documents: Ints


class Pairs:
    """Draws training pairs from the docids of documents and from the train queries they answer.

    Inputs are numbered: docid i is input i, train query j is input `n_docids` + j. Every epoch

    - all docids of each document are inputs, or `per_document` of them at most, each with another docid of the
      document as its target; a share `self_share` of them, and a document's only docid, have themselves as the target;
    - each (train query, relevant document) is one pair with a docid of the document, `per_document` pairs a query at
      most, if it is given; documents without docids are left out.

    Which docids these are is drawn anew for every epoch, from the seed and the number of the epoch alone.

    >>> pairs = Pairs(3, pair_docid=[0, 1, 2], pair_document=[0, 0, 1], query=[0], query_document=[1], self_share=0)
    >>> sorted(zip(*(column.tolist() for column in pairs.epoch(0))))
    [(0, 1, 0), (1, 0, 0), (2, 2, 1), (3, 2, 1)]
    """

    def __init__(
        self,
        n_docids: int,
        pair_docid: ArrayLike,
        pair_document: ArrayLike,
        query: ArrayLike = (),
        query_document: ArrayLike = (),
        *,
        per_document: int = 0,
        self_share: float = 0.1,
        seed: int = 0,
    ) -> None:
        """`per_document` 0 is no limit."""
        if per_document < 0 or not 0 <= self_share <= 1 or seed < 0:
            raise ValueError(
                f"per_document >= 0, self_share in 0..1 and seed >= 0 are needed: {per_document}, {self_share}, {seed}"
            )
        self.n_docids, self.self_share, self.seed = n_docids, self_share, seed
        self.per_document = per_document or np.iinfo(np.int64).max
        self._documents, self._docids = _distinct(pair_document, pair_docid, "docid")
        if len(self._docids) and not (self._docids.min() >= 0 and self._docids.max() < n_docids):
            raise ValueError(f"docids {self._docids.min()} to {self._docids.max()} are not all in 0..{n_docids - 1}")
        self._first, self._count = self._ranges(self._documents)  # of each row's document
        queries, documents = _distinct(query, query_document, "query")
        first, count = self._ranges(documents)
        known = count > 0
        self._queries, self._query_documents = queries[known], documents[known]
        self._query_first, self._query_count = first[known], count[known]
        self._size = sum(int((_rank(groups) < self.per_document).sum()) for groups in (self._documents, self._queries))
        self._cached: tuple[int, Epoch] | None = None

    def __len__(self) -> int:
        """How many pairs every epoch has."""
        return self._size

    def epoch(self, number: int) -> Epoch:
        """The pairs of one epoch, shuffled; the one asked for last is kept."""
        if self._cached is None or self._cached[0] != number:
            self._cached = (number, self._draw(number))
        return self._cached[1]

    def steps_per_epoch(self, size: int) -> int:
        """How many batches of `size` an epoch has; what does not fill the last one is left out, unless it is all."""
        if not len(self):
            raise PixnarError("there is nothing to train on: no document has a docid; give the corpus a docids.jsonl")
        return max(1, len(self) // size)

    def batch(self, step: int, size: int) -> Epoch:
        """The pairs of a step, counted from 0 through all epochs: to resume, the number of the step is enough."""
        epoch, place = divmod(step, self.steps_per_epoch(size))
        part = slice(place * size, (place + 1) * size)
        inputs, targets, documents = self.epoch(epoch)
        return Epoch(inputs[part], targets[part], documents[part])

    def docids_of(self, documents: ArrayLike) -> Ints:
        """How many docids each given document has."""
        return self._ranges(np.asarray(documents, np.int64))[1]

    def per_epoch(self, documents: int) -> Ints:
        """How many pairs of an epoch each of the documents 0 … `documents` − 1 has.

        >>> Pairs(3, pair_docid=[0, 1, 2], pair_document=[0, 0, 1], query=[0], query_document=[1]).per_epoch(2).tolist()
        [2, 2]
        """
        counts = np.minimum(self.docids_of(np.arange(documents)), self.per_document)
        asked = self._query_documents[_rank(self._queries) < self.per_document]
        return counts + np.bincount(asked, minlength=documents)

    def siblings(
        self, documents: ArrayLike, most: int, step: int, *, exclude: ArrayLike | None = None
    ) -> tuple[Ints, Ints]:
        """Up to `most` docids of each given document, drawn without repeats, and offsets: where each one's begin.

        `exclude` gives one docid per document that is not drawn (the input itself), unless the document has no other;
        -1 excludes none. The draw depends on the seed, the step and the documents given, on nothing else.
        """
        wanted = np.asarray(documents, np.int64)
        first, count = self._ranges(wanted)
        group = np.repeat(np.arange(len(wanted)), count)
        begin = np.cumsum(count) - count
        docids = self._docids[np.arange(len(group)) + np.repeat(first - begin, count)]
        if exclude is not None:
            kept = (docids != np.asarray(exclude, np.int64)[group]) | (count[group] == 1)
            group, docids = group[kept], docids[kept]
        chosen = _some_of_each(group, most, self._random(_SIBLINGS, step))
        offsets = np.zeros(len(wanted) + 1, np.int64)
        np.cumsum(np.bincount(group[chosen], minlength=len(wanted)), out=offsets[1:])
        return docids[chosen], offsets

    def _draw(self, number: int) -> Epoch:
        random = self._random(_EPOCH, number)
        rows = _some_of_each(self._documents, self.per_document, random)
        first, count = self._first[rows], self._count[rows]
        others = np.maximum(count - 1, 1)
        target = first + (rows - first + 1 + random.integers(0, others)) % count  # itself where it is the only one
        target = np.where(random.random(len(rows)) < self.self_share, rows, target)
        asked = _some_of_each(self._queries, self.per_document, random)
        answer = self._query_first[asked] + random.integers(0, self._query_count[asked])
        order = random.permutation(len(rows) + len(asked))
        return Epoch(
            np.concatenate([self._docids[rows], self.n_docids + self._queries[asked]])[order],
            self._docids[np.concatenate([target, answer])][order],
            np.concatenate([self._documents[rows], self._query_documents[asked]])[order],
        )

    def _ranges(self, documents: Ints) -> tuple[Ints, Ints]:
        """Where the rows of each document begin, and how many there are."""
        first = np.searchsorted(self._documents, documents)
        return first, np.searchsorted(self._documents, documents, side="right") - first

    def _random(self, purpose: int, number: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, purpose, number])


def _distinct(groups: ArrayLike, members: ArrayLike, what: str) -> tuple[Ints, Ints]:
    """The two columns of a relation, sorted by group and then member, without repeated rows."""
    left, right = np.asarray(groups, np.int64), np.asarray(members, np.int64)
    if left.ndim != 1 or left.shape != right.shape:
        raise ValueError(f"a {what} column and its documents need one length, not {left.shape} and {right.shape}")
    order = np.lexsort((right, left))
    left, right = left[order], right[order]
    fresh = np.ones(len(left), bool)
    fresh[1:] = (left[1:] != left[:-1]) | (right[1:] != right[:-1])
    return left[fresh], right[fresh]


def _some_of_each(groups: Ints, most: int, random: np.random.Generator) -> Ints:
    """The places of up to `most` random members of each group, in order of group; `groups` is sorted."""
    keys = random.random(len(groups))
    rank = _rank(groups)
    if not len(groups) or rank.max() < most:
        return np.arange(len(groups))
    order = np.lexsort((keys, groups))
    return np.sort(order[rank < most])


def _rank(groups: Ints) -> Ints:
    """The place of each row within its group: 0, 1, 2 …"""
    new = np.ones(len(groups), bool)
    new[1:] = groups[1:] != groups[:-1]
    starts = np.flatnonzero(new)
    return np.arange(len(groups)) - np.repeat(starts, np.diff(np.append(starts, len(groups))))

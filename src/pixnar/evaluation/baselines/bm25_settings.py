"""The settings of BM25, k1 and b: all pairs of a grid, tried on the words of the dev queries."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pixnar.evaluation.baselines.choice import reciprocal_rank, relevant_numbers
from pixnar.evaluation.baselines.entries import Entries, Ints
from pixnar.evaluation.queries import Queries
from pixnar.fusion.terms import words

K1, B = 1.5, 0.75
"""Without a dev split."""

K1_GRID, B_GRID = (0.2, 0.4, 0.6, 0.9, 1.2, 1.5, 2.0), (0.2, 0.4, 0.6, 0.75, 0.9)

Doubles = NDArray[np.float64]


def pairs(k1: float | None = None, b: float | None = None) -> list[tuple[float, float]]:
    """k1 and b, each as given or from its grid; the nearest to the defaults first, so that equals go to them.

    >>> pairs()[:2], pairs(k1=0.4)[0]
    ([(1.5, 0.75), (1.5, 0.6)], (0.4, 0.75))
    """
    grid = [(x, y) for x in (K1_GRID if k1 is None else (k1,)) for y in (B_GRID if b is None else (b,))]
    return sorted(grid, key=lambda pair: round(abs(pair[0] - K1) + abs(pair[1] - B), 9))


def dev_ranks(
    tokens: Sequence[Sequence[int]],
    vocabulary: dict[str, int],
    entries: Entries,
    dev: Queries,
    tried: Sequence[tuple[float, float]],
) -> Doubles:
    """The reciprocal ranks [pairs, queries] of dev queries under pairs of k1 and b."""
    asked = [[vocabulary[word] for word in words(text) if word in vocabulary] for text in dev.texts]
    postings = _TermCounts(tokens, {term for terms in asked for term in terms})
    ranks = np.zeros((len(tried), len(dev)))
    for i, (terms, wanted) in enumerate(zip(asked, relevant_numbers(dev, entries.doc_ids), strict=True)):
        matches = _Matches(postings, terms, entries)
        relevant = np.isin(matches.documents, wanted)
        if relevant.any():
            ranks[:, i] = [reciprocal_rank(matches.scores(*pair), relevant) for pair in tried]
    return ranks


class _TermCounts:
    """How often some terms stand in which entries, and how long entries are."""

    def __init__(self, tokens: Sequence[Sequence[int]], wanted: set[int]) -> None:
        lengths = np.array([len(row) for row in tokens], np.int64)
        terms = np.fromiter((term for row in tokens for term in row), np.int64, int(lengths.sum()))
        rows = np.repeat(np.arange(len(tokens)), lengths)
        kept = np.isin(terms, list(wanted))
        pairs, self.counts = np.unique(terms[kept] * len(tokens) + rows[kept], return_counts=True)
        self.terms, self.rows = np.divmod(pairs, len(tokens))
        self.n_entries, self.lengths = len(tokens), lengths / max(lengths.mean(), 1e-9)

    def of(self, term: int) -> slice:
        return slice(*np.searchsorted(self.terms, [term, term + 1]).tolist())


class _Matches:
    """What a query shares words with, ready to be scored with any k1 and b."""

    def __init__(self, postings: _TermCounts, terms: Sequence[int], entries: Entries) -> None:
        places = [postings.of(term) for term in terms]
        none = np.zeros(0, np.int64)
        rows, self._row = np.unique(np.concatenate([none, *(postings.rows[at] for at in places)]), return_inverse=True)
        self._counts = np.concatenate([none, *(postings.counts[at] for at in places)])
        sizes = np.array([at.stop - at.start for at in places], np.int64)
        idf = np.log1p((postings.n_entries - sizes + 0.5) / (sizes + 0.5))
        self._idf, self._lengths = np.repeat(idf, sizes), postings.lengths[rows][self._row]
        begins, named = entries.offsets[rows], entries.offsets[rows + 1] - entries.offsets[rows]
        ends = np.cumsum(named)
        owners = entries.documents[np.arange(named.sum()) + np.repeat(begins - ends + named, named)]
        order = np.argsort(owners, kind="stable")
        self._pairs = np.repeat(np.arange(len(rows)), named)[order]
        self.documents: Ints
        self.documents, self._starts = np.unique(owners[order], return_index=True)

    def scores(self, k1: float, b: float) -> Doubles:
        """The score of every document that shares a word with the query: that of its best entry."""
        weights = self._idf * self._counts / (self._counts + k1 * (1 - b + b * self._lengths))
        found: Doubles = np.maximum.reduceat(np.bincount(self._row, weights)[self._pairs], self._starts)
        return found.round(9)

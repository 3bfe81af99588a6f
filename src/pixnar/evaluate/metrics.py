"""How good a ranking is, and whether one is better than another by more than luck.

Rankings and judgements are given side by side, one of each per query; all figures are between 0 and 1.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pixnar.errors import PixnarError

Ranked = Iterable[Sequence[Hashable]]
Relevant = Iterable[Collection[Hashable]]
Figures = NDArray[np.float64]

_CHUNK = 4_000_000  # random signs held at a time


def reciprocal_ranks(ranked: Ranked, relevant: Relevant, k: int) -> Figures:
    """Per query 1 / rank of the first relevant document among the first `k`, or 0 if there is none.

    >>> reciprocal_ranks([["a", "b"], ["a", "b"]], [{"b"}, {"c"}], 10).tolist()
    [0.5, 0.0]
    """
    return np.array([_reciprocal_rank(row[:k], wanted) for row, wanted in zip(ranked, relevant, strict=True)], float)


def recalls(ranked: Ranked, relevant: Relevant, k: int) -> Figures:
    """Per query the share of its relevant documents that are among the first `k`; 0 if it has none.

    >>> recalls([["a", "b", "c"]], [{"b", "c"}], 2).tolist()
    [0.5]
    """
    pairs = zip(ranked, relevant, strict=True)
    return np.array([len(set(row[:k]) & set(wanted)) / max(len(set(wanted)), 1) for row, wanted in pairs], float)


def mrr_at(ranked: Ranked, relevant: Relevant, k: int = 10) -> float:
    """Mean of `reciprocal_ranks`."""
    return _mean(reciprocal_ranks(ranked, relevant, k))


def recall_at(ranked: Ranked, relevant: Relevant, k: int) -> float:
    """Mean of `recalls`."""
    return _mean(recalls(ranked, relevant, k))


def summary(run: Mapping[str, Sequence[str]], qrels: Mapping[str, Collection[str]]) -> dict[str, float]:
    """MRR@10 and recall at 5, 20 and 100 over the queries that have relevant documents.

    A query that is not in the run found nothing. So to judge a sample of queries, give the judgements of the sample.

    >>> summary({"q1": ["d1", "d2"]}, {"q1": {"d2"}, "q2": {"d1"}})
    {'MRR@10': 0.25, 'R@5': 0.5, 'R@20': 0.5, 'R@100': 0.5}
    """
    judged = [query for query, wanted in qrels.items() if wanted]
    ranked, relevant = [run.get(query, ()) for query in judged], [qrels[query] for query in judged]
    return {"MRR@10": mrr_at(ranked, relevant, 10)} | {f"R@{k}": recall_at(ranked, relevant, k) for k in (5, 20, 100)}


class Difference(NamedTuple):
    """How much the first of two systems is better in the mean, and how likely luck alone does as much."""

    mean: float
    p_value: float


def paired_difference(first: Figures, second: Figures, *, rounds: int = 10_000, seed: int = 0) -> Difference:
    """Compare two systems by a figure per query, the same queries in the same order, such as `reciprocal_ranks`.

    The p-value is that of a two-sided randomisation test: were the systems equal, the two figures of each query could
    change places by the toss of a coin, and the mean would be as far from 0 in this share of `rounds` tosses.

    >>> paired_difference(np.ones(20), np.zeros(20)).p_value < 0.001
    True
    """
    differences = np.asarray(first, np.float64) - np.asarray(second, np.float64)
    mean = _mean(differences)
    moving = differences[differences != 0]
    if not len(moving):
        return Difference(mean, 1.0)
    random = np.random.default_rng(seed)
    seen, least = 0, abs(moving.sum()) * (1 - 1e-9)  # sums in another order may differ in the last digits
    chunk = max(_CHUNK // len(moving), 1)
    for done in range(0, rounds, chunk):
        signs = random.integers(0, 2, (min(chunk, rounds - done), len(moving)), np.int8)
        sums = 2 * (signs @ moving) - moving.sum()
        seen += int(np.count_nonzero(np.abs(sums) >= least))
    return Difference(mean, (seen + 1) / (rounds + 1))


def _reciprocal_rank(row: Sequence[Hashable], wanted: Collection[Hashable]) -> float:
    return next((1 / rank for rank, document in enumerate(row, 1) if document in wanted), 0.0)


def _mean(values: Figures) -> float:
    if not len(values):
        raise PixnarError("there are no judged queries to average over: check the qrels and their split")
    return float(values.mean())

"""How good a ranking is, quickly: what training and choosing on dev ask thousands of times.

What is reported goes through `measures`. Rankings and judgements are given side by side, one of each per query; all
figures are between 0 and 1.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from pixnar.evaluation.significance import mean_of

Ranked = Iterable[Sequence[Hashable]]
Relevant = Iterable[Collection[Hashable]]
Figures = NDArray[np.float64]


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
    return mean_of(reciprocal_ranks(ranked, relevant, k))


def recall_at(ranked: Ranked, relevant: Relevant, k: int) -> float:
    """Mean of `recalls`."""
    return mean_of(recalls(ranked, relevant, k))


def summary(run: Mapping[str, Sequence[str]], qrels: Mapping[str, Collection[str]]) -> dict[str, float]:
    """MRR@10 and recall at 5, 20 and 100 over the queries that have relevant documents.

    A query that is not in the run found nothing. So to judge a sample of queries, give the judgements of the sample.

    >>> summary({"q1": ["d1", "d2"]}, {"q1": {"d2"}, "q2": {"d1"}})
    {'MRR@10': 0.25, 'R@5': 0.5, 'R@20': 0.5, 'R@100': 0.5}
    """
    judged = [query for query, wanted in qrels.items() if wanted]
    ranked, relevant = [run.get(query, ()) for query in judged], [qrels[query] for query in judged]
    return {"MRR@10": mrr_at(ranked, relevant, 10)} | {f"R@{k}": recall_at(ranked, relevant, k) for k in (5, 20, 100)}


def _reciprocal_rank(row: Sequence[Hashable], wanted: Collection[Hashable]) -> float:
    return next((1 / rank for rank, document in enumerate(row, 1) if document in wanted), 0.0)

"""Selection on the dev split: the option with the highest MRR@10, and its cross-validated figure."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import numpy as np
from numpy.typing import NDArray

from pixnar.evaluation.queries import Queries

DEV_QUERIES = 1000
"""Dev queries on which the settings of a baseline are chosen, at most."""

_K = 10
_FOLDS = 2

Ints = NDArray[np.int64]


def reciprocal_rank(scores: NDArray[np.floating], relevant: NDArray[np.bool_]) -> float:
    """1 / rank of the first relevant document if it is among the first ten, else 0; equals rank in the given order.

    >>> reciprocal_rank(np.array([1.0, 3.0, 3.0]), np.array([True, False, True]))
    0.5
    """
    places = np.flatnonzero(relevant)
    if not len(places):
        return 0.0
    first = places[scores[places].argmax()]
    before = np.count_nonzero(scores > scores[first]) + np.count_nonzero(scores[:first] == scores[first])
    return float(1 / (1 + before)) if before < _K else 0.0


def relevant_numbers(dev: Queries, doc_ids: Iterable[str]) -> list[Ints]:
    """The relevant documents of every query, as their places among `doc_ids`."""
    number = {doc_id: i for i, doc_id in enumerate(doc_ids)}
    return [np.array(_known(wanted, number), np.int64) for wanted in dev.relevant]


def _known(wanted: Collection[str], number: dict[str, int]) -> list[int]:
    return sorted(number[doc_id] for doc_id in wanted if doc_id in number)


def choose(ranks: NDArray[np.float64], seed: int = 0) -> tuple[int, dict[str, float]]:
    """The best row of [options, queries] reciprocal ranks, the first among equals; and its figures.

    The cross-validated figure judges either half of the queries by what is best on the other half.

    >>> choose(np.array([[0.0, 0.5, 0.0, 0.5], [1.0, 1.0, 1.0, 0.5]]))
    (1, {'queries': 4, 'MRR@10': 0.875, 'MRR@10 cross-validated': 0.875})
    """
    best = int(ranks.mean(axis=1).argmax())
    figures: dict[str, float] = {"queries": ranks.shape[1], "MRR@10": float(ranks[best].mean())}
    if ranks.shape[1] >= _FOLDS:
        folds = np.array_split(np.random.default_rng(seed).permutation(ranks.shape[1]), _FOLDS)
        total = 0.0
        for fold in folds:
            others = np.setdiff1d(np.arange(ranks.shape[1]), fold)
            total += float(ranks[ranks[:, others].mean(axis=1).argmax()][fold].sum())
        figures["MRR@10 cross-validated"] = total / ranks.shape[1]
    return best, figures

"""Weights of n-grams: how much likelier a query makes one than its count in the corpus does."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Doubles = NDArray[np.float64]

SMOOTHING = 5.0
"""Added to the count of an n-gram and to the number of tokens."""

_LEAST = 1e-10  # of 1 - p, so that its logarithm is finite where p = 1


def log_odds(log_p: ArrayLike, counts: ArrayLike, total: int, smoothing: float = SMOOTHING) -> Doubles:
    """max(0, log of the odds of p(n | q) over those of p₀(n)), where p₀ = (count + smoothing) / (total + smoothing).

    `log_p` are log-probabilities given the query, `counts` how often the n-grams occur among `total` tokens. All is
    finite: an n-gram as frequent as the corpus is long weighs nothing.

    >>> log_odds([-1.0, -1.0, -9.0], [3, 300, 300], 1000).round(2).tolist()
    [4.28, 0.29, 0.0]
    """
    p = np.minimum(np.asarray(log_p, np.float64), 0.0)
    count = np.asarray(counts, np.float64)
    with np.errstate(divide="ignore"):  # -inf, which the maximum makes 0
        corpus_odds = np.log(count + smoothing) - np.log(np.maximum(total - count, 0.0))
        query_odds = p - np.log(-np.expm1(p) + _LEAST)
    weights: Doubles = np.maximum(query_odds - corpus_odds, 0.0)
    return weights

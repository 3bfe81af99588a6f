"""From scores to a ranking, the same on every machine."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def best(scores: NDArray[np.floating], k: int) -> NDArray[np.int64]:
    """Where the `k` highest scores are, best first; among equals the lower index wins.

    >>> best(np.array([0.5, 2.0, 0.5, 2.0, 0.5]), 3).tolist()
    [1, 3, 0]
    """
    if k <= 0:
        return np.zeros(0, np.int64)
    if k < len(scores):
        last = np.partition(scores, len(scores) - k)[len(scores) - k]
        above, equal = np.flatnonzero(scores > last), np.flatnonzero(scores == last)
        chosen = np.concatenate([above, equal[: k - len(above)]])
    else:
        chosen = np.arange(len(scores))
    order = np.lexsort((chosen, -scores[chosen]))
    return chosen[order].astype(np.int64, copy=False)


def best_of_groups(
    scores: NDArray[np.float32], groups: NDArray[np.integer], n_groups: int, empty: float = 0.0
) -> NDArray[np.float32]:
    """The highest score of each group, given the group of every score; `empty` for groups without any.

    >>> best_of_groups(np.array([1, 3, 2], np.float32), np.array([0, 2, 2]), 3).tolist()
    [1.0, 0.0, 3.0]
    """
    out = np.full(n_groups, -np.inf, np.float32)
    np.maximum.at(out, groups, scores)
    out[np.isneginf(out)] = empty
    return out

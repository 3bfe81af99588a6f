"""How often a token, and the end of a docid at some slot, is expected before any query is seen."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True)
class Priors:
    """Log priors of tokens, smoothed so that none is impossible, and of the end of a docid by slot.

    >>> [round(float(p), 3) for p in Priors.count([3, 0], lengths=[1, 1, 2], slots=2).tokens]
    [-0.223, -1.609]
    """

    tokens: NDArray[np.float32]
    ends: NDArray[np.float32]

    @classmethod
    def count(cls, counts: ArrayLike, lengths: ArrayLike, slots: int) -> Priors:
        """From how often each token is used in the docids, and the docids' lengths.

        p(v) = (count + 1) / (N + V). The end is corrected by the ending rate of its slot: of the docids that have at
        least t tokens before slot t + 1, the share that ends there, smoothed alike.
        """
        used = np.asarray(counts, np.float64)
        tokens = np.log((used + 1) / (used.sum() + len(used)))
        sizes = np.asarray(lengths)
        ended = np.array([(sizes == t).sum() for t in range(slots)], np.float64)
        reached = np.array([(sizes >= t).sum() for t in range(slots)], np.float64)
        return cls(tokens.astype(np.float32), np.log((ended + 1) / (reached + 2)).astype(np.float32))

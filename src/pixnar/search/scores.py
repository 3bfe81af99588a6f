"""What a model says about a query: for every slot, which tokens how much, and how well a docid may end there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True)
class SlotScores:
    """Scores of tokens by slot, and of the end of a docid, all of them 32-bit floats.

    >>> scores = SlotScores.sparse([([3, 5], [1.0, 0.5]), ([5], [2.0])], ends=[0.0, -1.0])
    >>> scores.slots
    2
    """

    tokens: NDArray[np.uint32]
    scores: NDArray[np.float32]
    offsets: NDArray[np.int64]
    ends: NDArray[np.float32]
    is_dense: bool = False

    @property
    def slots(self) -> int:
        """How many slots there are."""
        return len(self.ends)

    @classmethod
    def sparse(cls, slots: Sequence[tuple[ArrayLike, ArrayLike]], ends: ArrayLike) -> SlotScores:
        """From (tokens, scores) for each slot; all other tokens get their floor."""
        tokens = [_token_ids(ids) for ids, _ in slots]
        scores = [as_floats(values, f"the scores of slot {t}") for t, (_, values) in enumerate(slots)]
        for t, (ids, values) in enumerate(zip(tokens, scores, strict=True)):
            if len(ids) != len(values):
                raise ValueError(
                    f"slot {t} has {len(ids)} tokens and {len(values)} scores: give one score for each token"
                )
        offsets = np.zeros(len(slots) + 1, np.int64)
        np.cumsum([len(ids) for ids in tokens], out=offsets[1:])
        return cls(
            np.concatenate([*tokens, np.zeros(0, np.uint32)]),
            np.concatenate([*scores, np.zeros(0, np.float32)]),
            offsets,
            _ends(ends, len(slots)),
        )

    @classmethod
    def dense(cls, scores_sv: ArrayLike, ends: ArrayLike) -> SlotScores:
        """From one score for every slot and token."""
        given = np.asarray(scores_sv)
        if given.ndim != 2:
            raise ValueError(f"dense scores have {given.ndim} dimensions: give slots x vocabulary")
        values = as_floats(given.ravel(), "dense scores")
        return cls(np.zeros(0, np.uint32), values, np.zeros(0, np.int64), _ends(ends, len(given)), is_dense=True)


def as_floats(values: ArrayLike, what: str) -> NDArray[np.float32]:
    """One dimension of 32-bit floats, none of them out of range."""
    given = np.asarray(values)
    if given.ndim != 1:
        raise ValueError(f"{what} should be a list of numbers, and have {given.ndim} dimensions")
    if given.size and given.dtype.kind not in "fiu":
        raise ValueError(f"{what} should be numbers, and are {given.dtype}")
    with np.errstate(over="ignore"):
        floats = np.ascontiguousarray(given, np.float32)
    if given.dtype != np.float32 and (np.isinf(floats) & ~np.isinf(given.astype(np.float64))).any():
        raise ValueError(f"{what} do not fit in 32-bit floats: the largest is {np.abs(given).max():g}")
    return floats


def _token_ids(ids: ArrayLike) -> NDArray[np.uint32]:
    given = np.asarray(ids)
    if given.ndim != 1 or (given.size and given.dtype.kind not in "iu"):
        raise ValueError(f"token ids should be a list of whole numbers, and are {given.ndim}-dimensional {given.dtype}")
    if given.size and (int(given.min()) < 0 or int(given.max()) > 0xFFFFFFFF):
        raise ValueError(f"token ids go from {given.min()} to {given.max()}: give ids of the vocabulary")
    return np.ascontiguousarray(given, np.uint32)


def _ends(ends: ArrayLike, slots: int) -> NDArray[np.float32]:
    values = as_floats(ends, "end scores")
    if len(values) != slots:
        raise ValueError(f"{len(values)} end scores for {slots} slots: give one for each slot")
    return values

"""What a model says about a query: for every slot, which tokens how much, and how well a docid may end there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True)
class SlotScores:
    """Scores of tokens by slot, and of the end of a docid.

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
        tokens = [np.asarray(ids, np.uint32).ravel() for ids, _ in slots]
        scores = [np.asarray(values, np.float32).ravel() for _, values in slots]
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
        values = np.ascontiguousarray(scores_sv, np.float32)
        if values.ndim != 2:
            raise ValueError(f"dense scores have {values.ndim} dimensions: give slots x vocabulary")
        nothing = np.zeros(0, np.uint32), np.zeros(0, np.int64)
        return cls(nothing[0], values.ravel(), nothing[1], _ends(ends, len(values)), is_dense=True)


def _ends(ends: ArrayLike, slots: int) -> NDArray[np.float32]:
    values = np.ascontiguousarray(ends, np.float32).ravel()
    if len(values) != slots:
        raise ValueError(f"{len(values)} end scores for {slots} slots: give one for each slot")
    return values

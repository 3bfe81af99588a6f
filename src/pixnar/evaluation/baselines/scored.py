"""Scored documents: one side of a hybrid, its best documents and the exact scores of any others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pixnar.fusion.postings import best

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]


class ScoredDocuments(Protocol):
    """Scores of documents for one query; documents are numbers of that side."""

    def best(self, depth: int) -> Ints:
        """The best so many documents, or fewer."""
        ...

    def of(self, documents: Ints) -> Floats:
        """The exact scores of some documents."""
        ...


@dataclass(frozen=True)
class AllScores:
    """Where the scores of all documents were computed anyway."""

    scores: Floats

    def best(self, depth: int) -> Ints:
        """The best so many documents; the lower number first among equals."""
        return best(self.scores, depth)

    def of(self, documents: Ints) -> Floats:
        """The scores of some documents."""
        return self.scores[documents]

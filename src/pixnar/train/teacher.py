"""Teacher of the ranking: dense similarity of inputs and docids, with BM25 over their words added for a hybrid."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pixnar.fusion.bm25 import K1, B, index_words, lucene
from pixnar.fusion.postings import Lengths
from pixnar.train.data import TrainingData, gathered

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]

_COSINE = 20.0  # scale of cosines before they go into a softmax
_BM25 = 0.8  # weight of BM25 beside them: 0.04 beside plain cosines, about what dev splits select for a hybrid


@dataclass(frozen=True)
class Teacher:
    """Scores docids for inputs by the encoder's own vectors, and, where it has words, by BM25 as well."""

    data: TrainingData
    words: _InputWords | None = None

    @classmethod
    def of(cls, data: TrainingData, kind: str) -> Teacher:
        """A teacher by name: dense, or hybrid."""
        return cls(data, _InputWords.of(data) if kind == "hybrid" else None)

    def scores(self, inputs: Ints, docids: Ints) -> Floats:
        """How well each docid [N] answers each input [B]: [B, N]."""
        vectors = self.data.vectors
        assert vectors is not None
        found: Floats = _COSINE * (vectors[inputs].astype(np.float32) @ vectors[docids].astype(np.float32).T)
        return found if self.words is None else found + _BM25 * self.words.scores(inputs, docids)


@dataclass(frozen=True)
class _InputWords:
    """The words of every input, and the BM25 weight of each in it: only those of docids are used."""

    terms: Ints  # one input after the other
    offsets: Ints
    weights: Floats

    @classmethod
    def of(cls, data: TrainingData) -> _InputWords:
        terms, rows, _, n = index_words(data.inputs)
        n_docids = len(data.docids)
        size = int(terms.max(initial=0)) + 1
        keys, counts = np.unique(rows * size + terms, return_counts=True)
        rows, terms = np.divmod(keys, size)
        weights = np.zeros(len(keys), np.float32)
        own = rows < n_docids
        sizes = np.bincount(rows[own], counts[own], minlength=n_docids).astype(np.uint32)
        lengths = Lengths(sizes, max(float(sizes.mean()), 1.0), K1, B)
        weights[own] = lucene(n_docids, lengths)(terms[own], rows[own], counts[own].astype(np.float64))
        return cls(terms, np.searchsorted(rows, np.arange(n + 1)), weights)

    def scores(self, inputs: Ints, docids: Ints) -> Floats:
        """BM25 of docids [N] for inputs [B]; a word that an input repeats counts once."""
        asked, asker = gathered(self.offsets[inputs], np.diff(self.offsets)[inputs])
        known, column = np.unique(self.terms[asked], return_inverse=True)
        if not len(known):  # inputs without a word
            return np.zeros((len(inputs), len(docids)), np.float32)
        query = np.zeros((len(inputs), len(known)), np.float32)
        query[asker, column] = 1.0
        places, owner = gathered(self.offsets[docids], np.diff(self.offsets)[docids])
        at = np.minimum(np.searchsorted(known, self.terms[places]), len(known) - 1)
        shared = known[at] == self.terms[places]
        entries = np.zeros((len(docids), len(known)), np.float32)
        entries[owner[shared], at[shared]] = self.weights[places[shared]]
        found: Floats = query @ entries.T
        return found

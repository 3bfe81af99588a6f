"""The vocabulary's tokens that occur in a text, not only those of its best segmentation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pixnar.vocab import TargetVocabulary, Vocabulary
from pixnar.vocab.protocol import Ids

_BATCH = 20_000


class TokenCounts(NamedTuple):
    """The distinct tokens of many texts: text i has ``ids[offsets[i]:offsets[i + 1]]``, ascending, and their counts."""

    ids: Ids
    offsets: NDArray[np.int64]
    counts: NDArray[np.uint32]

    @property
    def texts(self) -> NDArray[np.int64]:
        """The text that each id belongs to."""
        return np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))


class Ngrams:
    """Finds every word and phrase of a vocabulary that stands in a text as whole atoms, overlaps included.

    `pieces` adds what the vocabulary's own encoding needs for the rest: the pieces, bytes and markers of words that
    have no token of their own. For a vocabulary that is not of phrases the encoding is all there is.

    >>> vocabulary = Vocabulary.build(["new york hotels", "new york pizza", "cheap hotels", "new york"], min_count=2)
    >>> [vocabulary.token(v) for v in Ngrams(vocabulary).of("Hotels in New York")]
    ['hotels', 'new york', 'i', '##n']
    """

    def __init__(self, vocabulary: TargetVocabulary, *, pieces: bool = True) -> None:
        self.vocabulary = vocabulary
        self.pieces = pieces

    def of(self, text: str) -> Ids:
        """The distinct tokens in a text: words and phrases in the order they occur, then pieces."""
        if isinstance(self.vocabulary, Vocabulary):
            found = self.vocabulary.ngrams(text, pieces=self.pieces)
        else:
            found = self.vocabulary.encode(text)
        return np.fromiter(dict.fromkeys(found.tolist()), np.uint32)

    def count(self, texts: Sequence[str], *, threads: int = 0) -> TokenCounts:
        """The distinct tokens of each text, by id, and how often each occurs; runs on `threads` cores, 0 for all."""
        if isinstance(texts, str):
            raise TypeError("count takes a sequence of texts; for one text use of")
        parts = [self._counted(texts[begin : begin + _BATCH], threads) for begin in range(0, len(texts), _BATCH)]
        offsets = np.zeros(len(texts) + 1, np.int64)
        np.cumsum(np.concatenate([offsets[:0], *(np.diff(part.offsets) for part in parts)]), out=offsets[1:])
        ids = np.concatenate([np.zeros(0, np.uint32), *(part.ids for part in parts)])
        return TokenCounts(ids, offsets, np.concatenate([np.zeros(0, np.uint32), *(part.counts for part in parts)]))

    def _counted(self, texts: Sequence[str], threads: int) -> TokenCounts:
        if isinstance(self.vocabulary, Vocabulary):
            return TokenCounts(*self.vocabulary.count_ngrams(texts, pieces=self.pieces, threads=threads))
        size = len(self.vocabulary)
        encoded = self.vocabulary.encode_batch(texts, threads=threads)
        rows = np.repeat(np.arange(len(texts)), encoded.lengths)
        keys, counts = np.unique(rows * size + encoded.ids, return_counts=True)
        offsets = np.searchsorted(keys, np.arange(len(texts) + 1) * size).astype(np.int64)
        return TokenCounts((keys % size).astype(np.uint32), offsets, counts.astype(np.uint32))

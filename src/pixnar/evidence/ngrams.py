"""The vocabulary's tokens that occur in a text, not only those of its best segmentation."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pixnar.evidence.atoms import atom_pattern
from pixnar.vocab import EncodedBatch, TargetVocabulary, Vocabulary, normalize
from pixnar.vocab.protocol import Ids

_START, _CONTINUATION = 0, 1
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
        self._ids: dict[str, int] = {}
        self._reach: dict[str, int] = {}  # first atom of a token -> length of the longest such token
        if isinstance(vocabulary, Vocabulary):
            self._ids = _starts(vocabulary)
            for text in self._ids:
                first = atom_pattern(text).match(text)
                if first:
                    self._reach[first[0]] = max(len(text), self._reach.get(first[0], 0))

    def of(self, text: str) -> Ids:
        """The distinct tokens in a text: words and phrases in the order they occur, then pieces."""
        flat, _ = self._all([text], threads=1)
        return np.fromiter(dict.fromkeys(flat.tolist()), np.uint32)

    def count(self, texts: Sequence[str], *, threads: int = 0) -> TokenCounts:
        """The distinct tokens of each text, by id, and how often each occurs; encoding runs on `threads` cores."""
        if isinstance(texts, str):
            raise TypeError("count takes a sequence of texts; for one text use of")
        size = len(self.vocabulary)
        found = []
        for begin in range(0, len(texts), _BATCH):
            flat, rows = self._all(texts[begin : begin + _BATCH], threads)
            keys, counts = np.unique((rows + begin) * size + flat, return_counts=True)
            found.append((keys, counts))
        keys = np.concatenate([np.zeros(0, np.int64), *(keys for keys, _ in found)])
        counts = np.concatenate([np.zeros(0, np.uint32), *(counts.astype(np.uint32) for _, counts in found)])
        offsets = np.searchsorted(keys, np.arange(len(texts) + 1) * size).astype(np.int64)
        return TokenCounts((keys % size).astype(np.uint32), offsets, counts)

    def _all(self, texts: Sequence[str], threads: int) -> tuple[Ids, NDArray[np.int64]]:
        """Every occurrence of a token, and the text it is in; the pieces of all texts come last."""
        ids, lengths = array("I"), []
        for text in texts if self._ids else ():
            before = len(ids)
            ids.extend(self._spans(normalize(text)))
            lengths.append(len(ids) - before)
        rows = np.arange(len(texts))
        spans, span_rows = np.array(ids, np.uint32), np.repeat(rows[: len(lengths)], lengths)
        if not self.pieces and self._ids:
            return spans, span_rows
        encoded = self.vocabulary.encode_batch(texts, threads=threads)
        rest = ~self._whole(encoded)
        rest_rows = np.repeat(rows, encoded.lengths)[rest]
        return np.concatenate([spans, encoded.ids[rest]]), np.concatenate([span_rows, rest_rows])

    def _spans(self, text: str) -> Iterator[int]:
        """The tokens at every run of atoms of a normalised text, by where they begin and then by length."""
        ids, reach = self._ids, self._reach
        borders = [match.span() for match in atom_pattern(text).finditer(text)]
        for i, (begin, end) in enumerate(borders):
            limit = begin + reach.get(text[begin:end], 0)
            for j in range(i, len(borders)):
                end = borders[j][1]
                if end > limit:
                    break
                found = ids.get(text[begin:end])
                if found is not None:
                    yield found

    def _whole(self, encoded: EncodedBatch) -> NDArray[np.bool_]:
        """Which tokens of an encoding cover whole atoms: those `_spans` finds, too."""
        if not isinstance(self.vocabulary, Vocabulary):
            return np.zeros(len(encoded.ids), np.bool_)
        kinds = self.vocabulary.arrays["kinds"][encoded.ids]
        split = np.zeros(len(kinds), np.bool_)
        split[:-1] = kinds[1:] == _CONTINUATION  # the next token goes on with the same atom; a text starts with none
        whole: NDArray[np.bool_] = (kinds == _START) & ~split
        return whole


def _starts(vocabulary: Vocabulary) -> dict[str, int]:
    """Tokens that begin an atom, by their text; bytes that are no text by themselves are left out."""
    data, offsets = vocabulary.arrays["bytes"].tobytes(), vocabulary.arrays["offsets"].tolist()
    found = {}
    for v in np.flatnonzero(vocabulary.arrays["kinds"] == _START).tolist():
        raw = data[offsets[v] : offsets[v + 1]]
        if len(raw) > 1 or raw.isascii():
            found[raw.decode()] = v
    return found

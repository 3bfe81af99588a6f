"""The slow twin of `Ngrams`: a dict of every token, looked up for every run of atoms."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from pixnar.fusion.terms import atom_pattern
from pixnar.vocab import Vocabulary, normalize

START, CONTINUATION = 0, 1


class SlowNgrams:
    """What `Ngrams` says of a phrase vocabulary, in plain Python."""

    def __init__(self, vocabulary: Vocabulary, *, pieces: bool = True) -> None:
        self.vocabulary, self.pieces = vocabulary, pieces
        self._ids: dict[str, int] = {}
        data, offsets = vocabulary.arrays["bytes"].tobytes(), vocabulary.arrays["offsets"].tolist()
        for v in np.flatnonzero(vocabulary.arrays["kinds"] == START).tolist():
            raw = data[offsets[v] : offsets[v + 1]]
            if len(raw) > 1 or raw.isascii():  # other bytes are no text by themselves
                self._ids[raw.decode()] = v

    def all(self, text: str) -> list[int]:
        """Every occurrence: words and phrases by where they begin and then by length, then pieces."""
        return [*self._spans(normalize(text)), *(self._rest(text) if self.pieces else ())]

    def of(self, text: str) -> list[int]:
        """The distinct tokens."""
        return list(dict.fromkeys(self.all(text)))

    def count(self, text: str) -> dict[int, int]:
        """How often each token occurs, by id."""
        return dict(sorted(Counter(self.all(text)).items()))

    def _spans(self, text: str) -> Iterator[int]:
        borders = [match.span() for match in atom_pattern(text).finditer(text)]
        for i, (begin, _) in enumerate(borders):
            for _, end in borders[i:]:
                if text[begin:end] in self._ids:
                    yield self._ids[text[begin:end]]

    def _rest(self, text: str) -> list[int]:
        """What the encoding has beside tokens that cover whole atoms."""
        ids = self.vocabulary.encode(text).tolist()
        kinds = [*self.vocabulary.arrays["kinds"][ids].tolist(), START]
        return [v for i, v in enumerate(ids) if kinds[i] != START or kinds[i + 1] == CONTINUATION]

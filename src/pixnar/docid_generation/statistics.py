"""In how many documents of a corpus each word stands: what makes a word telling is the corpus' own business."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pixnar.base.errors import FileFormatError
from pixnar.base.storage import read_container, write_container
from pixnar.base.strings import SortedStrings
from pixnar.fusion.terms import STOP_WORDS, words

_FILE_KIND, _FILE_VERSION = "words", 1
_MOST = 4_000_000  # words that are kept at a time: less than a gigabyte
_COMMON = 0.15  # a word that stands in more of the documents than this says nothing of any of them
_ENOUGH = 100  # documents from which such a share means something


class WordStatistics:
    """Document frequencies of words, counted in one pass within bounded memory.

    Up to four million distinct words are counted exactly. Beyond, those found in the fewest documents are forgotten
    now and then, and count as found in as many documents as the last that were.

    >>> counted = WordStatistics.count(["a red bus", "a blue bus", "a red door and a red roof"])
    >>> counted.found_in("red"), counted.found_in("bicycle"), counted.idf("roof") > counted.idf("red")
    (2, 0, True)
    """

    def __init__(self, documents: int, counts: dict[str, int], forgotten: int = 0) -> None:
        self.documents, self._counts, self._forgotten = documents, counts, forgotten

    @classmethod
    def count(cls, texts: Iterable[str], *, most: int = _MOST) -> WordStatistics:
        """Read normalised texts, one per document."""
        counts: dict[str, int] = {}
        documents = forgotten = 0
        for text in texts:
            documents += 1
            for word in set(words(text)):
                counts[word] = counts.get(word, 0) + 1
            while len(counts) > most:
                forgotten += 1
                counts = {word: count for word, count in counts.items() if count > forgotten}
        return cls(documents, counts, forgotten)

    def found_in(self, word: str) -> int:
        """In how many documents a word stands."""
        return self._counts.get(word, self._forgotten)

    def idf(self, word: str) -> float:
        """How telling a word is: BM25's inverse document frequency."""
        found = min(self.found_in(word), self.documents)
        return math.log1p((self.documents - found + 0.5) / (found + 0.5))

    def is_common(self, word: str) -> bool:
        """Whether a word says nothing of what a text is about: in English by a list, in any language by its frequency.

        >>> WordStatistics.count(["die rose", "die lilie"] * 60).is_common("die")
        True
        """
        return word in STOP_WORDS or (self.documents >= _ENOUGH and self.found_in(word) > _COMMON * self.documents)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write to one file, atomically."""
        table = SortedStrings.of(sorted(self._counts))
        found = np.fromiter((self._counts[word] for word in table), np.int64, len(table))
        meta = {"documents": self.documents, "forgotten": self._forgotten}
        arrays: dict[str, NDArray[Any]] = {"words": table.data, "word_offsets": table.offsets, "found_in": found}
        write_container(path, _FILE_KIND, _FILE_VERSION, meta, arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> WordStatistics:
        """Read what `save` wrote."""
        container = read_container(path, _FILE_KIND, _FILE_VERSION)
        try:
            table = SortedStrings(container.arrays["words"], container.arrays["word_offsets"])
            counts = dict(zip(table, container.arrays["found_in"].tolist(), strict=True))
            return cls(int(container.meta["documents"]), counts, int(container.meta["forgotten"]))
        except (KeyError, ValueError) as error:
            raise FileFormatError(f"{path} holds no usable word counts ({error}): remove it") from error

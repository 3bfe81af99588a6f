"""The round-trip filter of pseudo-queries: does a query find the document that it was made for?"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from pixnar.fusion.bm25 import Bm25


class RoundtripFilter:
    """A filter by BM25 over the documents' texts, in the order of the corpus.

    >>> roundtrip = RoundtripFilter(Bm25.build(["green tea and cups", "black tea", "coffee"]))
    >>> roundtrip.finds("a cup of green tea", 0, 1), roundtrip.finds("tea", 0, 1), roundtrip.finds("sugar", 2, 3)
    (True, False, False)
    """

    def __init__(self, bm25: Bm25) -> None:
        self._bm25 = bm25

    @classmethod
    def over(cls, texts: Iterable[str], path: Path) -> RoundtripFilter:
        """Build it once; what lies at `path` is opened."""
        if not path.exists():
            Bm25.build(texts).save(path)
        return cls(Bm25.load(path))

    def finds(self, query: str, document: int, most: int) -> bool:
        """Whether at most `most` documents, this one included, answer a query as well as it does."""
        scores = self._bm25.score(query)
        own = scores[document]
        return bool(own > 0) and int(np.count_nonzero(scores >= own)) <= most

"""BM25 by the library bm25s: what most people would use."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pixnar.baselines.entries import DOCIDS, Entries, Found, Ints
from pixnar.corpus import Corpus
from pixnar.errors import CorpusError, FileFormatError, MissingExtraError, PixnarError
from pixnar.progress import Progress
from pixnar.search import Hit
from pixnar.vocab import normalize

K1, B = 1.5, 0.75
_WORDS = "bm25"  # the folder that bm25s writes


class Bm25Retriever:
    """BM25 over docids (a document is as good as its best one), over docids joined, over text, or over both.

    Words are those of bm25s, without stop words or stemming; documents that share no word with a query are not found.
    """

    def __init__(self, entries: Entries, words: Any) -> None:
        self.entries, self._words, self._library = entries, words, _bm25s()

    @classmethod
    def build(
        cls, corpus: Corpus, over: str = DOCIDS, *, k1: float = K1, b: float = B, progress: Progress | None = None
    ) -> Bm25Retriever:
        """Index a corpus."""
        if not (k1 >= 0 and 0 <= b <= 1 and np.isfinite(k1)):
            raise PixnarError(f"k1 {k1} and b {b} are not possible: give k1 of 0 or more and b from 0 to 1")
        library = _bm25s()
        entries, texts = Entries.read(corpus, over, progress)
        if progress:
            progress("indexing words", 0, 0)
        tokens = library.tokenize(texts, stopwords=[], show_progress=False)
        if not tokens.vocab:
            raise CorpusError(f"{corpus.name} has no words of two letters or more to index: use another baseline")
        words = library.BM25(k1=k1, b=b)
        words.index(tokens, show_progress=False)
        return cls(entries, words)

    def search(self, query: str, k: int = 10) -> list[Hit]:
        """The k best documents, or as many as share a word with the query."""
        if k < 1:
            return []
        text = normalize(query)
        tokens = self._library.tokenize([text], stopwords=[], return_ids=False, show_progress=False)[0]
        ids = self._words.get_tokens_ids(tokens)
        if not ids:
            return []
        try:
            scores = self._words.get_scores_from_ids(ids)
        except (IndexError, ValueError) as error:
            raise FileFormatError(f"the BM25 index is damaged ({error}): copy or build the baseline again") from error
        matching: Ints = np.flatnonzero(scores > 0)
        found = scores[matching]

        def find(depth: int) -> Found:
            if depth >= len(matching):
                return Found(matching, found, whole=True)
            kept = found >= np.partition(found, -depth)[-depth]  # all that are as good as the last of them
            return Found(matching[kept], found[kept], whole=False)

        return self.entries.best(k, find)

    def search_batch(self, queries: Sequence[str], k: int = 10) -> list[list[Hit]]:
        """The same for many queries."""
        if isinstance(queries, str):
            raise TypeError("search_batch takes a list of queries; for one query use search")
        return [self.search(query, k) for query in queries]

    def save(self, folder: Path) -> None:
        """Write entries and words into a folder."""
        self.entries.save(folder)
        self._words.save(folder / _WORDS, show_progress=False)

    @classmethod
    def load(cls, folder: Path) -> Bm25Retriever:
        """Open what `save` wrote."""
        library, entries = _bm25s(), Entries.load(folder)
        try:
            words = library.BM25.load(folder / _WORDS, mmap=True, show_progress=False)
            sound = words.scores["num_docs"] == len(entries)
        except Exception as error:  # whatever damaged JSON and arrays lead to
            raise FileFormatError(
                f"{folder / _WORDS} is damaged ({error}): copy or build the baseline again"
            ) from error
        if not sound:
            raise FileFormatError(f"{folder / _WORDS} is not about {len(entries)} entries: build the baseline again")
        return cls(entries, words)


def _bm25s() -> Any:
    try:
        import bm25s
    except ImportError as error:
        raise MissingExtraError("BM25 by bm25s", "baselines") from error
    logging.getLogger("bm25s").setLevel(logging.WARNING)  # it tells of every step, whatever others are told
    return bm25s

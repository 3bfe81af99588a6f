"""BM25 baseline, by the library bm25s."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pixnar.base.errors import FileFormatError, MissingExtraError, MissingPartError, PixnarError
from pixnar.base.progress import Progress
from pixnar.corpus import Corpus
from pixnar.evaluation.baselines.bm25_settings import K1, B, dev_ranks, pairs
from pixnar.evaluation.baselines.choice import choose
from pixnar.evaluation.baselines.entries import DOCIDS, Entries, Floats, Ints, ScoredEntries
from pixnar.evaluation.baselines.scored import AllScores
from pixnar.evaluation.queries import Queries
from pixnar.fusion.terms import words
from pixnar.search import Hit
from pixnar.vocab import normalize

NO_QUERIES = Queries([], [], [])
_WORDS = "bm25"  # the folder that bm25s writes


class Bm25Retriever:
    """BM25 over docids (a document is as good as its best one), over docids joined, over text, or over both.

    Words are those of an index, without stop words or stemming; documents that share no word with a query are not
    found.
    """

    def __init__(self, entries: Entries, library_index: Any, figures: dict[str, float] | None = None) -> None:
        self.entries, self._index = entries, library_index
        self.figures = figures or {}  # on dev, where k1 and b were chosen

    @property
    def k1(self) -> float:
        """How soon a word's repeats stop counting."""
        return float(self._index.k1)

    @property
    def b(self) -> float:
        """How much long entries are held back."""
        return float(self._index.b)

    @classmethod
    def build(
        cls,
        corpus: Corpus,
        over: str = DOCIDS,
        *,
        k1: float | None = None,
        b: float | None = None,
        dev: Queries = NO_QUERIES,
        progress: Progress | None = None,
    ) -> Bm25Retriever:
        """Index a corpus; what is not given of k1 and b is chosen on `dev`."""
        return cls.best(corpus, (over,), k1=k1, b=b, dev=dev, progress=progress)[1]

    @classmethod
    def best(
        cls,
        corpus: Corpus,
        forms: Sequence[str],
        *,
        k1: float | None = None,
        b: float | None = None,
        dev: Queries = NO_QUERIES,
        progress: Progress | None = None,
    ) -> tuple[str, Bm25Retriever]:
        """The form, with k1 and b, that is best on `dev`, all chosen together; equals go to the earlier form.

        Forms that the corpus lacks the parts for are left out. Without dev queries the first that is left is taken.
        """
        if not (0 <= (k1 or 0) < np.inf and 0 <= (b or 0) <= 1):
            raise PixnarError(f"k1 {k1} and b {b} are not possible: give k1 of 0 or more and b from 0 to 1")
        library = _bm25s()
        found: dict[str, _EntryWords] = {}
        missing: list[MissingPartError] = []
        for form in forms:
            try:
                found[form] = _EntryWords.read(corpus, form, progress)
            except MissingPartError as error:
                missing.append(error)
        if not found:
            raise missing[0]
        over, pair, figures = next(iter(found)), (K1 if k1 is None else k1, B if b is None else b), dict[str, float]()
        if len(dev):
            if progress:
                progress("choosing k1 and b on dev", 0, 0)
            tried = pairs(k1, b)
            ranks = [dev_ranks(some.tokens, some.vocabulary, some.entries, dev, tried) for some in found.values()]
            place, figures = choose(np.concatenate(ranks))
            over, pair = list(found)[place // len(tried)], tried[place % len(tried)]
        entries, tokens, vocabulary = found[over]
        made = library.BM25(k1=pair[0], b=pair[1])
        made.index((tokens, vocabulary), show_progress=False)
        return over, cls(entries, made, figures)

    def scored(self, query: str) -> AllScores:
        """The scores of all documents: 0 for those that share no word with the query."""
        scores = self._scores(query)
        if self.entries.spellings is not None:
            rows, begins = self.entries.by_document
            scores = np.maximum.reduceat(scores[rows], begins[:-1])
        return AllScores(scores)

    def _scores(self, query: str) -> Floats:
        """The score of every entry."""
        ids = self._index.get_tokens_ids(words(normalize(query)))
        if not ids:
            return np.zeros(len(self.entries), np.float32)
        try:
            scores: Floats = self._index.get_scores_from_ids(ids)
        except (IndexError, ValueError) as error:
            raise FileFormatError(f"the BM25 index is damaged ({error}): copy or build the baseline again") from error
        return scores

    def search(self, query: str, k: int = 10) -> list[Hit]:
        """The k best documents, or as many as share a word with the query."""
        if k < 1:
            return []
        scores = self._scores(query)
        matching: Ints = np.flatnonzero(scores > 0)
        found = scores[matching]

        def find(depth: int) -> ScoredEntries:
            if depth >= len(matching):
                return ScoredEntries(matching, found, whole=True)
            kept = found >= np.partition(found, -depth)[-depth]  # all that are as good as the last of them
            return ScoredEntries(matching[kept], found[kept], whole=False)

        return self.entries.best(k, find)

    def search_batch(self, queries: Sequence[str], k: int = 10) -> list[list[Hit]]:
        """The same for many queries."""
        if isinstance(queries, str):
            raise TypeError("search_batch takes a list of queries; for one query use search")
        return [self.search(query, k) for query in queries]

    def save(self, folder: Path) -> None:
        """Write entries and words into a folder."""
        self.entries.save(folder)
        self._index.save(folder / _WORDS, show_progress=False)

    @classmethod
    def load(cls, folder: Path) -> Bm25Retriever:
        """Open what `save` wrote."""
        library, entries = _bm25s(), Entries.load(folder)
        try:
            made = library.BM25.load(folder / _WORDS, mmap=True, show_progress=False)
            sound = made.scores["num_docs"] == len(entries)
        except Exception as error:  # whatever damaged JSON and arrays lead to
            raise FileFormatError(
                f"{folder / _WORDS} is damaged ({error}): copy or build the baseline again"
            ) from error
        if not sound:
            raise FileFormatError(f"{folder / _WORDS} is not about {len(entries)} entries: build the baseline again")
        return cls(entries, made)


class _EntryWords(NamedTuple):
    """The words of all entries of a form, by number."""

    entries: Entries
    tokens: list[list[int]]
    vocabulary: dict[str, int]

    @classmethod
    def read(cls, corpus: Corpus, over: str, progress: Progress | None) -> _EntryWords:
        entries, texts = Entries.read(corpus, over, progress)
        if progress:
            progress("indexing words", 0, 0)
        vocabulary: dict[str, int] = {}
        tokens = [[vocabulary.setdefault(word, len(vocabulary)) for word in words(text)] for text in texts]
        if not vocabulary:
            raise MissingPartError(f"{corpus.name} has no words to index: use another baseline")
        return cls(entries, tokens, vocabulary)


def _bm25s() -> Any:
    try:
        import bm25s
    except ImportError as error:
        raise MissingExtraError("BM25 by bm25s", "baselines") from error
    logging.getLogger("bm25s").setLevel(logging.WARNING)  # it tells of every step, whatever others are told
    return bm25s

"""BM25 baseline, by the library bm25s, and the selection of its k1 and b on the words of the dev queries."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pixnar.base.errors import FileFormatError, MissingExtraError, MissingPartError, PixnarError
from pixnar.base.progress import Progress
from pixnar.corpus import Corpus
from pixnar.evaluation.baselines.entries import (
    DOCIDS,
    AllScores,
    Entries,
    Floats,
    Ints,
    ScoredEntries,
    choose,
    reciprocal_rank,
    relevant_numbers,
)
from pixnar.evaluation.queries import Queries
from pixnar.fusion.terms import words
from pixnar.search import Hit
from pixnar.vocab import normalize

K1, B = 1.5, 0.75
"""Without a dev split."""

K1_GRID, B_GRID = (0.2, 0.4, 0.6, 0.9, 1.2, 1.5, 2.0), (0.2, 0.4, 0.6, 0.75, 0.9)

Doubles = NDArray[np.float64]


def pairs(k1: float | None = None, b: float | None = None) -> list[tuple[float, float]]:
    """k1 and b, each as given or from its grid; the nearest to the defaults first, so that equals go to them.

    >>> pairs()[:2], pairs(k1=0.4)[0]
    ([(1.5, 0.75), (1.5, 0.6)], (0.4, 0.75))
    """
    grid = [(x, y) for x in (K1_GRID if k1 is None else (k1,)) for y in (B_GRID if b is None else (b,))]
    return sorted(grid, key=lambda pair: round(abs(pair[0] - K1) + abs(pair[1] - B), 9))


def dev_ranks(
    tokens: Sequence[Sequence[int]],
    vocabulary: dict[str, int],
    entries: Entries,
    dev: Queries,
    tried: Sequence[tuple[float, float]],
) -> Doubles:
    """The reciprocal ranks [pairs, queries] of dev queries under pairs of k1 and b."""
    asked = [[vocabulary[word] for word in words(text) if word in vocabulary] for text in dev.texts]
    postings = _TermCounts(tokens, {term for terms in asked for term in terms})
    ranks = np.zeros((len(tried), len(dev)))
    for i, (terms, wanted) in enumerate(zip(asked, relevant_numbers(dev, entries.doc_ids), strict=True)):
        matches = _Matches(postings, terms, entries)
        relevant = np.isin(matches.documents, wanted)
        if relevant.any():
            ranks[:, i] = [reciprocal_rank(matches.scores(*pair), relevant) for pair in tried]
    return ranks


class _TermCounts:
    """How often some terms stand in which entries, and how long entries are."""

    def __init__(self, tokens: Sequence[Sequence[int]], wanted: set[int]) -> None:
        lengths = np.array([len(row) for row in tokens], np.int64)
        terms = np.fromiter((term for row in tokens for term in row), np.int64, int(lengths.sum()))
        rows = np.repeat(np.arange(len(tokens)), lengths)
        kept = np.isin(terms, list(wanted))
        pairs, self.counts = np.unique(terms[kept] * len(tokens) + rows[kept], return_counts=True)
        self.terms, self.rows = np.divmod(pairs, len(tokens))
        self.n_entries, self.lengths = len(tokens), lengths / max(lengths.mean(), 1e-9)

    def of(self, term: int) -> slice:
        return slice(*np.searchsorted(self.terms, [term, term + 1]).tolist())


class _Matches:
    """What a query shares words with, ready to be scored with any k1 and b."""

    def __init__(self, postings: _TermCounts, terms: Sequence[int], entries: Entries) -> None:
        places = [postings.of(term) for term in terms]
        none = np.zeros(0, np.int64)
        rows, self._row = np.unique(np.concatenate([none, *(postings.rows[at] for at in places)]), return_inverse=True)
        self._counts = np.concatenate([none, *(postings.counts[at] for at in places)])
        sizes = np.array([at.stop - at.start for at in places], np.int64)
        idf = np.log1p((postings.n_entries - sizes + 0.5) / (sizes + 0.5))
        self._idf, self._lengths = np.repeat(idf, sizes), postings.lengths[rows][self._row]
        begins, named = entries.offsets[rows], entries.offsets[rows + 1] - entries.offsets[rows]
        ends = np.cumsum(named)
        owners = entries.documents[np.arange(named.sum()) + np.repeat(begins - ends + named, named)]
        order = np.argsort(owners, kind="stable")
        self._pairs = np.repeat(np.arange(len(rows)), named)[order]
        self.documents: Ints
        self.documents, self._starts = np.unique(owners[order], return_index=True)

    def scores(self, k1: float, b: float) -> Doubles:
        """The score of every document that shares a word with the query: that of its best entry."""
        weights = self._idf * self._counts / (self._counts + k1 * (1 - b + b * self._lengths))
        found: Doubles = np.maximum.reduceat(np.bincount(self._row, weights)[self._pairs], self._starts)
        return found.round(9)


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

"""The lexical index: what the docids and the text of a document share with a query, and with what a model expects."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import islice
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pixnar.base.errors import FileFormatError
from pixnar.base.normalize import normalize_lines
from pixnar.base.storage import read_container, write_container
from pixnar.base.strings import SortedStrings
from pixnar.fusion.postings import Changed, Floats, Lengths, Postings, Recounted, Rows, Weight, Whole
from pixnar.fusion.terms import Ngrams, WordNumbers, words
from pixnar.vocab import TargetVocabulary, Vocabulary, normalize

Ints = NDArray[np.int64]

Docids = Literal["all", "added", "none"]

_FILE_KIND, _FILE_VERSION = "lexical", 1
_BATCH = 20_000
_START = 0  # the kind of vocabulary tokens that begin a word
_NO_WORD, _WORD, _PHRASE = 0, 1, 2  # shapes of tokens


class LexicalIndex:
    """Scores documents by the terms they share with a query, and by the tokens a model expects in a good document.

    Terms 0 … V − 1 are the vocabulary's tokens where they stand as whole words and phrases, overlaps included; V and
    up are the words that have no token of their own, often the most telling ones. A posting's weight is BM25's
    tf · (k1 + 1) / (tf + k1 · (1 − b + b · length / mean length)), lengths in words; `idf` is kept apart, because the
    gain of an expected token already says how rare it is.

    >>> vocabulary = Vocabulary.build(["new york hotels", "new york pizza", "cheap hotels", "new york"], min_count=2)
    >>> texts = [(0, "new york hotels"), (0, "cheap hotels"), (1, "pizza in new york"), (2, "zebras")]
    >>> lexical = LexicalIndex.build(vocabulary, texts, n_units=3)
    >>> [int(lexical.score(query).argmax()) for query in ("cheap hotels", "New York pizza", "a zebra or two zebras")]
    [0, 1, 2]
    """

    def __init__(
        self,
        vocabulary: TargetVocabulary,
        postings: Postings,
        table: SortedStrings,
        shapes: NDArray[np.uint8],
        lengths: Lengths,
        *,
        phrase_weight: float = 0.1,
        whole: Whole | None = None,
        docids: Docids = "all",
    ) -> None:
        """Use `build` or `load`; `whole` is what these documents are a part of, and the rarity of terms is told by."""
        if whole is not None and len(whole.found_in) != postings.n_terms:
            raise ValueError(f"{len(whole.found_in)} counts of documents for {postings.n_terms} terms")
        if len(vocabulary) != len(shapes):
            raise ValueError(f"made for {len(shapes)} tokens, the vocabulary has {len(vocabulary)}")
        if len(shapes) + len(table) != postings.n_terms:
            raise ValueError(f"{len(shapes)} tokens and {len(table)} words for {postings.n_terms} lists")
        if len(lengths.values) != postings.n_units:
            raise ValueError(f"{len(lengths.values)} lengths for {postings.n_units} documents")
        self.postings, self.table, self.shapes, self.lengths = postings, table, shapes, lengths
        self.phrase_weight, self.whole, self.docids = phrase_weight, whole, docids
        self._recounted: Recounted | None = None
        self._new_words: dict[str, int] = {}
        self._vocabulary, self._ngrams = vocabulary, Ngrams(vocabulary, pieces=False)

    @classmethod
    def build(
        cls,
        vocabulary: TargetVocabulary,
        texts: Iterable[tuple[int, str]],
        n_units: int,
        *,
        k1: float = 0.9,
        b: float = 0.4,
        phrase_weight: float = 0.1,
        docids: Docids = "all",
        n_counted: int | None = None,
    ) -> LexicalIndex:
        """Index texts, each given with the document (0 … n_units − 1) it belongs to, in any order.

        All texts of a document count as one, but no phrase reaches from one text into the next. `docids` says which
        docids count: those among the texts and those added later, only those added later, or none. `n_counted` is how
        many documents the mean length and the rarity of terms are of, if not all.
        """
        n_counted = n_units if n_counted is None else n_counted
        ngrams, shapes = Ngrams(vocabulary, pieces=False), _shapes(vocabulary)
        found = _TermRows.of(ngrams, texts, n_units)
        table, terms = _without_token(found.words, ngrams, shapes)
        others = terms[found.word_rows.terms]
        kept = others >= 0
        words_of = np.bincount(found.word_rows.units, minlength=n_units)
        mean = max(float(words_of.sum()) / n_counted if n_counted else 0.0, 1e-9)
        lengths = Lengths(words_of.astype(np.uint32), mean, k1, b)
        postings = Postings.from_counts(
            np.concatenate([found.token_rows.terms, others[kept] + len(shapes)]),
            np.concatenate([found.token_rows.units, found.word_rows.units[kept]]),
            np.concatenate([found.token_rows.counts, found.word_rows.counts[kept]]),
            len(shapes) + len(table),
            n_units,
            _tf_part(lengths),
        )
        whole = None if n_counted == n_units else Whole(n_counted, postings.frequency)
        return cls(
            vocabulary, postings, table, shapes, lengths, phrase_weight=phrase_weight, whole=whole, docids=docids
        )

    @property
    def n_units(self) -> int:
        """How many documents there are."""
        return (self._recounted or self.postings).n_units

    @cached_property
    def idf(self) -> Floats:
        """The inverse document frequency of every term; made when first asked for, and not for queries."""
        return self._idf(np.arange(self.postings.n_terms))

    def query_terms(self, text: str) -> tuple[Ints, Floats]:
        """The distinct words and phrases of a query that some document may have, and what each counts.

        A word counts idf, a phrase `phrase_weight` of that (its words count on their own), each as often as it occurs;
        punctuation alone counts nothing.
        """
        text = normalize(text)
        tokens = self._ngrams.count([text], threads=1)
        shapes = self.shapes[tokens.ids]
        factors = np.where(shapes == _WORD, 1.0, np.where(shapes == _PHRASE, self.phrase_weight, 0.0)) * tokens.counts
        used = factors > 0
        others = [term for term in self._terms(words(text)) if term is not None]
        other_terms, other_counts = np.unique(np.array(others, np.int64), return_counts=True)
        terms = np.concatenate([tokens.ids[used].astype(np.int64), other_terms])
        weights = self._idf(terms) * np.concatenate([factors[used], other_counts])
        return terms, weights.astype(np.float32)

    def score(self, text: str) -> Floats:
        """The score of every document by the query's own words and phrases."""
        return self._score(*self.query_terms(text))

    def expansion(self, ids: ArrayLike, gains: ArrayLike) -> Floats:
        """The score of every document by tokens that a model expects: the sum of gain times weight in the document.

        A gain says how much likelier the model finds the token than it is anywhere (log P(v|q) − log p(v)); what is
        not above 0 counts nothing.
        """
        terms, factors = np.asarray(ids, np.int64), np.asarray(gains, np.float32)
        if terms.size and not 0 <= terms.min() <= terms.max() < len(self.shapes):
            raise IndexError(f"token ids must be in 0 … {len(self.shapes) - 1}")
        return self._score(terms[factors > 0], factors[factors > 0])

    def part(self, units: NDArray[np.int64]) -> LexicalIndex:
        """The same of some documents, given ascending, which are 0, 1, 2 … there: each scores what it scores here."""
        whole = self.whole or Whole(self.n_units, self.postings.frequency)
        return self._with(self.postings.part(units), self.lengths.part(units), whole)

    def _with(self, postings: Postings, lengths: Lengths, whole: Whole | None) -> LexicalIndex:
        how: dict[str, Any] = {"phrase_weight": self.phrase_weight, "docids": self.docids}
        return LexicalIndex(self._vocabulary, postings, self.table, self.shapes, lengths, whole=whole, **how)

    def changed(self, changed: Changed) -> LexicalIndex:
        """The same after documents gained and lost docids.

        How rare a term is and the mean length stay those of the build; a word that no text had stands in none.
        """
        made = self._with(self.postings, self.lengths, self.whole)
        gained = self._counted(changed.gained if self.docids != "none" else [], changed.size)
        lost = self._counted(changed.lost if self.docids == "all" else [], changed.size)
        new = sorted(word for word in gained.unknown if self.table.find(word) is None)
        made._new_words = {word: self.postings.n_terms + i for i, word in enumerate(new)}
        rows = Rows.joined([made._rows(gained, 1), made._rows(lost, -1)])
        longer = gained.lengths - lost.lengths
        made._recounted = Recounted(
            self.postings, changed, rows, longer, self.lengths, lambda terms: np.full(len(terms), self.lengths.k1 + 1)
        )
        return made

    def _counted(self, texts: list[tuple[int, str]], n_units: int) -> _Counted:
        found = _TermRows.of(self._ngrams, texts, n_units)
        has_token = _with_token(found.words, self._ngrams, self.shapes)
        unknown = [None if has else word for word, has in zip(found.words, has_token.tolist(), strict=True)]
        lengths = np.bincount(found.word_rows.units, minlength=n_units)
        return _Counted(found, unknown, lengths)

    def _rows(self, counted: _Counted, sign: int) -> Rows:
        """Tokens, and words without a token that some document has, as terms."""
        tokens, found = counted.found.token_rows, counted.found.word_rows
        ids = self._terms(["" if word is None else word for word in counted.names])
        terms = np.array([-1 if term is None else term for term in ids], np.int64)[found.terms]
        known = terms >= 0
        words_only = Rows(terms[known], found.units[known], found.counts[known])
        rows = Rows.joined([tokens, words_only])
        return rows._replace(counts=sign * rows.counts)

    def _terms(self, some: Sequence[str]) -> list[int | None]:
        """The terms of words that have no token of their own; None for those that no document has."""
        found = self.table.numbers(some).tolist()
        return [
            self._new_words.get(word) if number < 0 else number + len(self.shapes)
            for word, number in zip(some, found, strict=True)
        ]

    def _idf(self, terms: Ints) -> Floats:
        if self.whole is not None:
            return self.whole.idf(terms).astype(np.float32)
        offsets, found_in = self.postings.offsets, np.zeros(len(terms), np.int64)
        built = terms < self.postings.n_terms
        found_in[built] = offsets[terms[built] + 1] - offsets[terms[built]]
        return Whole(self.postings.n_units, found_in).idf(np.arange(len(terms))).astype(np.float32)

    def _score(self, terms: Ints, weights: Floats) -> Floats:
        return (self._recounted or self.postings).score(terms, weights)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write to one file, atomically. The vocabulary is not in it."""
        arrays: dict[str, NDArray[Any]] = self.postings.arrays()
        arrays |= {"words": self.table.data, "word_offsets": self.table.offsets, "shapes": self.shapes}
        arrays["lengths"] = self.lengths.values
        meta: dict[str, Any] = {"n_units": self.n_units, "phrase_weight": self.phrase_weight, "docids": self.docids}
        meta |= self.lengths.meta
        if self.whole is not None:
            arrays["found_in"] = self.whole.found_in
            meta["of_units"] = self.whole.n_units
        write_container(path, _FILE_KIND, _FILE_VERSION, meta, arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str], vocabulary: TargetVocabulary, *, verify: bool = True) -> LexicalIndex:
        """Map a file that `save` wrote, for the vocabulary it was built with; `verify` reads all to find damage."""
        container = read_container(path, _FILE_KIND, _FILE_VERSION, verify=verify)
        arrays, meta = container.arrays, container.meta
        try:
            postings = Postings.from_arrays(arrays, int(meta["n_units"]), verify=verify, where=os.fspath(path))
            table = SortedStrings(arrays["words"], arrays["word_offsets"], verify=verify, where=os.fspath(path))
            whole = Whole(int(meta["of_units"]), arrays["found_in"]) if "of_units" in meta else None
            lengths = Lengths(arrays["lengths"], *(float(meta[name]) for name in ("mean", "k1", "b")))
            how: dict[str, Any] = {"phrase_weight": float(meta["phrase_weight"]), "docids": meta["docids"]}
            return cls(vocabulary, postings, table, arrays["shapes"], lengths, whole=whole, **how)
        except (KeyError, ValueError, TypeError) as error:
            raise FileFormatError(f"{path} holds no usable lexical index ({error}): build it again") from error


class _TermRows(NamedTuple):
    """Everything in the texts: rows of tokens, rows of words by their numbers, and the words in that order."""

    token_rows: Rows
    word_rows: Rows
    words: list[str]

    @classmethod
    def of(cls, ngrams: Ngrams, texts: Iterable[tuple[int, str]], n_units: int) -> _TermRows:
        numbers, token_rows, word_rows = WordNumbers(), [], []
        for units, lines in _batches(texts):
            if not 0 <= units.min() <= units.max() < n_units:
                raise ValueError(f"the units of texts must be in 0 … {n_units - 1}")
            tokens = ngrams.count(lines, threads=1)
            token_rows.append(Rows(tokens.ids.astype(np.int64), units[tokens.texts], tokens.counts.astype(np.int64)))
            found, lengths = numbers.of(lines)
            word_rows.append(Rows(found.astype(np.int64), np.repeat(units, lengths), np.ones(len(found), np.int64)))
        return cls(Rows.joined(token_rows), Rows.joined(word_rows), list(numbers))


class _Counted(NamedTuple):
    """What stands in some texts, the words among them that have no token (None for the others), and the lengths."""

    found: _TermRows
    names: list[str | None]
    lengths: Ints

    @property
    def unknown(self) -> list[str]:
        return [word for word in self.names if word is not None]


def _batches(texts: Iterable[tuple[int, str]]) -> Iterator[tuple[Ints, list[str]]]:
    """Units and normalised texts."""
    rows = iter(texts)
    while batch := list(islice(rows, _BATCH)):
        lines = normalize_lines([text for _, text in batch]).decode().split("\n")
        yield np.array([unit for unit, _ in batch], np.int64), lines


def _without_token(distinct: list[str], ngrams: Ngrams, shapes: NDArray[np.uint8]) -> tuple[SortedStrings, Ints]:
    """The table of words that are no token, and for each of the distinct words its id there or −1."""
    has_token = _with_token(distinct, ngrams, shapes)
    table = SortedStrings.of(sorted(word for word, has in zip(distinct, has_token, strict=True) if not has))
    numbers = {word: i for i, word in enumerate(table)}
    return table, np.fromiter((numbers.get(word, -1) for word in distinct), np.int64, len(distinct))


def _with_token(distinct: list[str], ngrams: Ngrams, shapes: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Which of the distinct words are a token."""
    tokens = ngrams.count(distinct, threads=1)
    has_token = np.zeros(len(distinct), np.bool_)
    has_token[tokens.texts[shapes[tokens.ids] == _WORD]] = True
    return has_token


def _shapes(vocabulary: TargetVocabulary) -> NDArray[np.uint8]:
    """Per token whether it is a word, has words and more, or has none; only phrase vocabularies have any of these."""
    shapes = np.full(len(vocabulary), _NO_WORD, np.uint8)
    if isinstance(vocabulary, Vocabulary):
        for v in np.flatnonzero(vocabulary.arrays["kinds"] == _START).tolist():
            text = vocabulary.token_bytes(v).decode(errors="ignore")
            parts = words(text)
            if parts:
                shapes[v] = _WORD if parts == [text] else _PHRASE
    return shapes


def _tf_part(lengths: Lengths) -> Weight:
    damping = lengths.damping(lengths.values)

    def weight(terms: Ints, units: Ints, counts: NDArray[np.float64]) -> NDArray[np.float64]:
        result: NDArray[np.float64] = counts * (lengths.k1 + 1) / (counts + damping[units])
        return result

    return weight

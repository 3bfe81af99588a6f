"""Terms of texts: words as the native core cuts them, and the vocabulary's words and phrases that stand in a text."""

from __future__ import annotations

import functools
import re
import sys
from array import array
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pixnar import _native
from pixnar.vocab import TargetVocabulary, Vocabulary
from pixnar.vocab.protocol import Ids

_LISTS = (
    "a an the this that these those",
    "and or but nor if then than as so",
    "of in on at by for from to with into onto about",
    "i you he she it we they me him her us them my your his its our their",
    "is are was were be been being am do does did has have had",
    "will would can could shall should may might must",
    "not no there here s t",  # the last two are the ends of "it's" and "don't"
)

STOP_WORDS = frozenset(word for words in _LISTS for word in words.split())
"""Articles, pronouns, prepositions, auxiliaries: English words that say little about what a text is about."""


_WORD, _LONE = 1, 2  # kinds of characters, as in native/vocab/text.hpp
_ASCII_ATOMS = re.compile(r"[a-z0-9]+|[^ ]")
_ASCII_WORDS = re.compile(r"[a-z0-9]+")


def atom_pattern(text: str) -> re.Pattern[str]:
    """What matches the atoms of a normalised text one after the other.

    >>> atom_pattern("").findall("all-star game, 1999")
    ['all', '-', 'star', 'game', ',', '1999']
    """
    return _ASCII_ATOMS if text.isascii() else _unicode_patterns()[0]


def word_pattern(text: str) -> re.Pattern[str]:
    """What matches the words of a normalised text, which `words` lists."""
    return _ASCII_WORDS if text.isascii() else _unicode_patterns()[1]


def words(text: str) -> list[str]:
    """The words of a normalised text: its atoms without punctuation and other signs.

    >>> words("all-star game, 1999")
    ['all', 'star', 'game', '1999']
    """
    return word_pattern(text).findall(text)


class WordNumbers(dict[str, int]):
    """Words by number, in the order they came: a word that has none yet gets the next.

    >>> [row.tolist() for row in WordNumbers().of(["to be or", "not to be"])]
    [[0, 1, 2, 3, 0, 1], [3, 3]]
    """

    def __missing__(self, word: str) -> int:
        self[word] = number = len(self)
        return number

    def of(self, lines: Iterable[str]) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
        """The words of normalised texts by number, one text after the other, and how many each text has."""
        found, lengths = array("I"), array("I")
        for line in lines:
            row = words(line)
            found.extend(map(self.__getitem__, row))
            lengths.append(len(row))
        return np.array(found, np.uint32), np.array(lengths, np.uint32)


@functools.cache
def _unicode_patterns() -> tuple[re.Pattern[str], re.Pattern[str]]:
    kinds = [_native.char_kind(c) for c in range(sys.maxunicode + 1)]
    runs = f"[{_ranges(kinds, _WORD)}]+"
    return re.compile(f"{runs}|[^ ]"), re.compile(f"{runs}|[{_ranges(kinds, _LONE)}]")


def _ranges(kinds: list[int], wanted: int) -> str:
    """The characters of one kind, for use within brackets."""
    parts, begin = [], 0
    for kind, run in groupby(kinds):
        end = begin + sum(1 for _ in run)
        if kind == wanted:
            parts.append(f"\\U{begin:08x}-\\U{end - 1:08x}")
        begin = end
    return "".join(parts)


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
